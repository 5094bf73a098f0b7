"""The callbacks of what-if: what is removed, added and changed, and what the model says then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cf2.errors import CF2Error
from cf2.report.scene import is_molecule, scene
from cf2.report.words import adds_or_changes, atom_names, class_names
from cf2.results.explanation import Explanation
from cf2.web import canvas, view
from cf2.web.address import Place, address_of, place_of
from cf2.web.listing import search_ids
from cf2.web.whatif import Edit, WhatIf, absent, checked_place, describe_edit, edits_now, explanation_shown, removed_now


def callbacks(app: Any, asked: WhatIf, run: str = "") -> None:
    """Have the graph, the lists and the buttons beside it change what the model is asked."""
    _tap_callbacks(app, asked)
    _change_callbacks(app, asked, run)


def _tap_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, State, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("tail", "value"),
        Output("head", "value"),
        Output("node", "value"),
        Input("cytoscape", "tapNode"),
        State("shown", "data"),
        State("tail", "value"),
        State("head", "value"),
        prevent_initial_call=True,
    )
    def tap(tapped: Any, shown: Any, tail: Any, head: Any) -> Any:
        data = tapped.get("data") if isinstance(tapped, Mapping) else None
        if not isinstance(data, Mapping) or asked.read_only:
            return (no_update,) * 3
        e = explanation_shown(asked, shown)
        node = checked_place("a node", data.get("node"), int(asked.graph(e.key).num_nodes))
        # The first click begins an edge, the second one ends it.
        return (node, None, node) if tail is None or head is not None else (no_update, node, node)


def _change_callbacks(app: Any, asked: WhatIf, run: str) -> None:
    from dash import Input, Output, State, ctx, no_update, set_props

    @app.callback(  # type: ignore[untyped-decorator]
        Output("removed", "data"),
        Output("units", "options"),
        Output("units", "value"),
        Output("unlisted", "children"),
        Output("cytoscape", "stylesheet"),
        Output("answer", "children"),
        Output("edits", "data"),
        Output("edited", "options"),
        Output("edited", "value"),
        Output("edit-note", "children"),
        Output("address", "data"),
        Input("shown", "data"),
        Input("cytoscape", "tapEdge"),
        Input("units", "value"),
        Input("only", "n_clicks"),
        Input("without", "n_clicks"),
        Input("restore", "n_clicks"),
        Input("near", "value"),
        Input("add-edge", "n_clicks"),
        Input("change-feature", "n_clicks"),
        Input("edited", "value"),
        Input("restored", "data"),
        Input("wanted", "data"),
        State("removed", "data"),
        State("edits", "data"),
        State("tail", "value"),
        State("head", "value"),
        State("node", "value"),
        State("column", "value"),
        State("value", "value"),
        State("scheme", "data"),
    )
    def change(
        shown: Any,
        tap: Any,
        checked: Any,
        _only: Any,
        _without: Any,
        _restore: Any,
        near: Any,
        _add: Any,
        _change: Any,
        stay: Any,
        restored: Any,
        wanted: Any,
        before: Any,
        made: Any,
        *typed: Any,
    ) -> Any:
        if shown is None:
            return (no_update,) * 11
        e, cause = explanation_shown(asked, shown), ctx.triggered_id
        *typed, scheme = typed  # type: ignore[assignment]
        listed = view.listed(e, search_ids(near))
        if asked.read_only:
            return (*_stored(asked, e, listed, scheme), address_of(run, e, shown["method"], e.selected & False, ()))
        place = _asked_for(asked, run, shown, ctx.triggered_prop_ids.values(), restored, wanted)
        if place is None:
            removed = removed_now(e, cause, tap, checked, before, listed)
            edits, note = edits_now(asked, e, cause, typed, stay, made)
        else:
            removed, edits, note = place.removed, place.edits, ""
        fresh = cause in ("shown", "wanted", None)
        if edits if fresh else [list(edit) for edit in edits] != (made or []):
            # The elements belong to the callback that shows an instance; here, edits are put in.
            set_props("cytoscape", {"elements": _elements(asked, e, edits, scheme)})
        boxes = view.options(e, listed, atom_names(asked.context)) if fresh or cause == "near" else no_update
        still = listed[(~removed ^ absent(e))[listed]].tolist()
        return (
            np.flatnonzero(removed).tolist(),
            boxes,
            still,
            _unlisted(e, listed),
            canvas.stylesheet(e, removed, scheme),
            _answer(asked, e, removed, edits),
            [list(edit) for edit in edits],
            _described(asked, e, edits),
            list(range(len(edits))),
            note,
            address_of(run, e, shown["method"], removed, edits),
        )


def _asked_for(asked: WhatIf, run: str, shown: Any, causes: Iterable[Any], restored: Any, wanted: Any) -> Place | None:
    """The state that an address asks for, where that is the cause and belongs to what is shown."""
    given = {"restored": restored, "wanted": wanted}
    text = next((given[cause] for cause in causes if isinstance(cause, str) and cause in given), None)
    try:
        place = place_of(asked, run, text)
    except CF2Error:
        return None  # it was said where the instance was looked for
    mine = place is not None and (place.key, place.method) == (shown["key"], shown["method"])
    return place if mine else None


def _elements(asked: WhatIf, e: Explanation, edits: Sequence[Edit], scheme: Any) -> list[dict[str, Any]]:
    drawn = scene(e, asked.context_of(e), list(asked.explanations(e.key).values()))
    return canvas.elements(e, drawn, edits, atom_names(asked.context), scheme, is_molecule(asked.context))


def _answer(asked: WhatIf, e: Explanation, removed: np.ndarray, edits: Sequence[Edit]) -> Any:
    """What the model says now; after edits, there are no parts to be judged."""
    names = class_names(asked.context)
    if edits or adds_or_changes(e):
        return view.edited_answer(e, *asked.ask_edited(e, removed, edits), names)
    return view.answer(e, asked.ask(e, removed), removed, names)


def _described(asked: WhatIf, e: Explanation, edits: Sequence[Edit]) -> list[dict[str, Any]]:
    """One checkbox per edit, which takes it back."""
    graph, atoms = asked.graph(e.key), atom_names(asked.context)
    texts = [describe_edit(edit, graph, atoms, e.directed) for edit in edits]
    return [{"label": text, "value": place} for place, text in enumerate(texts)]


def _stored(asked: WhatIf, e: Explanation, listed: np.ndarray, scheme: Any) -> Any:
    """The same where there is no model: nothing can be removed."""
    boxes = view.options(e, listed, atom_names(asked.context), disabled=True)
    answer, present = view.stored(e, class_names(asked.context)), listed[~absent(e)[listed]]
    styles = canvas.stylesheet(e, e.selected & False, scheme)
    return [], boxes, present.tolist(), _unlisted(e, listed), styles, answer, [], [], [], ""


def _unlisted(e: Explanation, listed: np.ndarray) -> str:
    left = e.num_units - len(listed)
    return f"{left:,} more are not listed; give a node's id to see those at it." if left else ""
