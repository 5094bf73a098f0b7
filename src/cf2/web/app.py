"""The what-if page as a Dash app: every callback checks what it is given and answers from a `WhatIf`."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cf2.errors import CF2Error, require
from cf2.report.scene import scene
from cf2.report.sentences import class_names, count_nouns, describe_prediction, describe_target, key_id
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.model_and_data import ModelAndData
from cf2.web import view
from cf2.web.again import SECONDS, Queue
from cf2.web.changes import checked_lam, checked_number, checked_units, removed_now, state_of
from cf2.web.guard import LOOPBACK, protect
from cf2.web.layout import layout
from cf2.web.listing import page, search_ids
from cf2.web.whatif import WhatIf

log = logging.getLogger("cf2.web")


def build_app(
    source: ModelAndData | None,
    found: Mapping[str, Explanations],
    *,
    hosts: frozenset[str] | None = LOOPBACK,
    notes: Sequence[str] = (),
    seconds: float = SECONDS,
) -> Any:
    """The page about one model and its data.

    Parameters
    ----------
    source : ModelAndData or None
        What was explained; None: the page shows what was stored, and asks no model.
    found : mapping of str to Explanations
        The explanations by method.
    hosts : set of str or None
        The names that the server answers to; None: any.
    notes : sequence of str
        What stands at the top of the page.
    seconds : float
        How long "explain again" may take.

    Returns
    -------
    dash.Dash
        Its `server` is a WSGI application, and `server.extensions["cf2"]` the `Queue` of what is being explained again.
    """
    asked, queue, app = WhatIf(source, found), Queue(seconds), _empty_app()
    app.layout = lambda: layout(asked, notes)
    _list_callbacks(app, asked)
    _pick_callbacks(app, asked)
    _method_callbacks(app, asked)
    _again_callbacks(app, asked, queue)
    _cancel_callbacks(app, queue)
    _picture_callbacks(app, asked)
    _whatif_callbacks(app, asked)
    _export_callbacks(app, asked)
    app.enable_dev_tools(debug=False)
    app.server.extensions["cf2"] = queue
    protect(app, hosts)
    return app


def _empty_app() -> Any:
    """A Dash app without content, or an error where Dash is not installed."""
    try:
        with warnings.catch_warnings():
            # Dash's own modules use things that it deprecates; none of it is ours to change.
            warnings.simplefilter("ignore", DeprecationWarning)
            import dash
            import dash_cytoscape  # noqa: F401
    except ImportError as error:
        raise CF2Error(
            "Expected dash and dash-cytoscape to be installed", got="neither or one", do="pip install 'cf2[web]'"
        ) from error
    app = dash.Dash(
        "cf2",
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        title="cf2: what if",
        update_title="",
        add_log_handler=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.index_string = app.index_string.replace("<html>", '<html lang="en">')
    return app


def _list_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, State, ctx

    lists = {name: list(by_key.values()) for name, by_key in asked.methods.items()}
    default = next(iter(lists))

    @app.callback(  # type: ignore[untyped-decorator]
        Output("list", "children"),
        Output("pages", "children"),
        Output("count", "children"),
        Output("place", "data"),
        Output("previous", "disabled"),
        Output("next", "disabled"),
        Input("show", "value"),
        Input("sort", "value"),
        Input("search", "value"),
        Input("previous", "n_clicks"),
        Input("next", "n_clicks"),
        Input("method", "value"),
        Input("key", "data"),
        State("place", "data"),
    )
    def fill(show: Any, sort: Any, search: Any, _p: Any, _n: Any, method: Any, key: Any, place: Any) -> Any:
        step = {"previous": -1, "next": 1}.get(ctx.triggered_id or "", 0)
        place = 0 if ctx.triggered_id in ("show", "sort", "search") else place
        require(isinstance(place, int), "Expected the number of a page", got=repr(place))
        known = lists.get(method if isinstance(method, str) else default, lists[default])
        found = page(known, place + step, show, sort, search)
        names = class_names(asked.context)
        entries = [view.entry(e, names, key_id(e.key) == key) for e in found.items]
        where = f"{found.number + 1:,} of {found.pages:,}"
        text = f"{found.total:,} of {count_nouns(len(known), 'instance')}"
        return entries, where, text, found.number, found.number == 0, found.number + 1 >= found.pages


def _pick_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import ALL, Input, Output, ctx, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("key", "data"), Input({"type": "pick", "key": ALL}, "n_clicks"), prevent_initial_call=True
    )
    def pick(clicks: Any) -> Any:
        chosen = ctx.triggered_id
        # A page of the list that has just been drawn reports buttons that were not pressed.
        if not isinstance(chosen, Mapping) or not ctx.triggered or not ctx.triggered[0]["value"]:
            return no_update
        return key_id(asked.key(chosen.get("key")))


def _method_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, State, ctx

    @app.callback(  # type: ignore[untyped-decorator]
        Output("method", "options"),
        Output("method", "value"),
        Output("comparison", "children"),
        Input("key", "data"),
        Input("made", "data"),
        State("method", "value"),
    )
    def choose(text: Any, made: Any, method: Any) -> Any:
        key = asked.key(text)
        # What was made for an instance that is not shown any more is found where that is shown.
        if ctx.triggered_id == "made" and isinstance(made, Mapping) and made.get("key") == text:
            method = made.get("method")
        names = list(asked.explanations(key))
        return names, method if method in names else names[0], view.comparison(asked, key)


def _again_callbacks(app: Any, asked: WhatIf, queue: Queue) -> None:
    from dash import Input, Output, State, set_props

    busy = f"Explaining, or waiting for others who do; at most {queue.seconds:g} s each."

    @app.callback(  # type: ignore[untyped-decorator]
        Output("again-note", "children"),
        Input("again", "n_clicks"),
        State("visitor", "data"),
        State("shown", "data"),
        State("alpha", "value"),
        State("lambda", "value"),
        running=[
            (Output("again", "disabled"), True, False),
            (Output("cancel", "disabled"), False, True),
            (Output("again-busy", "children"), busy, ""),
        ],
        prevent_initial_call=True,
    )
    def again(_clicks: Any, visitor: Any, shown: Any, alpha: Any, lam: Any) -> Any:
        e, page = _explanation(asked, shown), _visitor(visitor)
        try:
            numbers = checked_number("α", alpha), checked_lam(lam)
            name = queue.run(page, lambda go_on: asked.again(e, *numbers, go_on))
        except CF2Error as error:
            return str(error)
        except Exception as error:
            log.error("Failed to explain again", exc_info=error)
            return f"It failed, and the log says why: {error}"
        made = asked.explanation(e.key, name)
        # Were this an output, Dash would hold back all that depends on it, and so every what-if, until it is there.
        set_props("made", {"data": {"key": key_id(e.key), "method": name}})
        return f"{describe_target(e)}: {count_nouns(made.size, 'unit')} in {made.seconds:.1f} s"


def _cancel_callbacks(app: Any, queue: Queue) -> None:
    from dash import Input, Output, State

    @app.callback(  # type: ignore[untyped-decorator]
        Output("cancelled", "data"), Input("cancel", "n_clicks"), State("visitor", "data"), prevent_initial_call=True
    )
    def cancel(_clicks: Any, visitor: Any) -> Any:
        return queue.cancel(_visitor(visitor))


def _picture_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("cytoscape", "elements"),
        Output("cytoscape", "layout"),
        Output("prediction", "children"),
        Output("caption", "children"),
        Output("shown", "data"),
        Input("key", "data"),
        Input("method", "value"),
    )
    def show(key: Any, method: Any) -> Any:
        every = asked.explanations(asked.key(key))
        if not isinstance(method, str) or method not in every:
            return (no_update,) * 5  # the method belongs to another instance and is about to change
        e = every[method]
        drawn = scene(e, asked.context_of(e), list(every.values()))
        preset = {"name": "preset", "fit": True, "padding": 24, "instance": f"{key} {method}"}
        said = describe_prediction(e, class_names(asked.context))
        where = {"key": key, "method": method}
        return view.elements(e, drawn), preset, said, drawn.caption, where


def _whatif_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, State, ctx, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("removed", "data"),
        Output("units", "options"),
        Output("units", "value"),
        Output("unlisted", "children"),
        Output("cytoscape", "stylesheet"),
        Output("answer", "children"),
        Input("shown", "data"),
        Input("cytoscape", "tapEdge"),
        Input("units", "value"),
        Input("only", "n_clicks"),
        Input("without", "n_clicks"),
        Input("restore", "n_clicks"),
        Input("near", "value"),
        State("removed", "data"),
    )
    def change(shown: Any, tap: Any, checked: Any, _o: Any, _w: Any, _r: Any, near: Any, before: Any) -> Any:
        if shown is None:
            return (no_update,) * 6
        e = _explanation(asked, shown)
        listed = view.listed(e, search_ids(near))
        if asked.read_only:
            return _stored(asked, e, listed)
        removed = removed_now(e, ctx.triggered_id, tap, checked, before, listed)
        answer = view.answer(e, asked.ask(e, removed), removed, class_names(asked.context))
        boxes = view.options(e, listed) if ctx.triggered_id in ("shown", "near", None) else no_update
        still = listed[~removed[listed]].tolist()
        return np.flatnonzero(removed).tolist(), boxes, still, _unlisted(e, listed), view.stylesheet(e, removed), answer


def _stored(asked: WhatIf, e: Explanation, listed: np.ndarray) -> Any:
    """The same where there is no model: nothing can be removed."""
    boxes, answer = view.options(e, listed, disabled=True), view.stored(e, class_names(asked.context))
    return [], boxes, listed.tolist(), _unlisted(e, listed), view.STYLESHEET, answer


def _unlisted(e: Explanation, listed: np.ndarray) -> str:
    left = e.num_units - len(listed)
    return f"{left:,} more are not listed; give a node's id to see those at it." if left else ""


def _export_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, State, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("cytoscape", "generateImage"),
        Input("png", "n_clicks"),
        State("shown", "data"),
        prevent_initial_call=True,
    )
    def picture(clicks: Any, shown: Any) -> Any:
        e = _explanation(asked, shown)
        options = {"bg": "#ffffff", "scale": 2, "full": True}
        return {"type": "png", "action": "download", "filename": f"{e.task}-{key_id(e.key)}", "options": options}

    @app.callback(  # type: ignore[untyped-decorator]
        Output("download", "data"),
        Input("json", "n_clicks"),
        State("shown", "data"),
        State("removed", "data"),
        prevent_initial_call=True,
    )
    def state(clicks: Any, shown: Any, removed: Any) -> Any:
        if not clicks:
            return no_update
        e = _explanation(asked, shown)
        made = json.dumps(state_of(asked, e, checked_units(removed, e.num_units)), indent=1)
        return {
            "content": made,
            "filename": f"{e.task}-{key_id(e.key)}.json",
            "type": "application/json",
            "base64": False,
        }


def _explanation(asked: WhatIf, shown: Any) -> Explanation:
    require(isinstance(shown, Mapping), "Expected a key and a method", got=type(shown).__name__)
    return asked.explanation(asked.key(shown.get("key")), shown.get("method"))


def _visitor(name: Any) -> str:
    require(isinstance(name, str) and len(name) < 40, "Expected the name of a page", got=type(name).__name__)
    return str(name)
