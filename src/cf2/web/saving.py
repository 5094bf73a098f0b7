"""The callbacks that save what is seen: as PNG, as SVG, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cf2.report import pictures as svg
from cf2.report.scene import Scene, is_molecule, scene
from cf2.report.words import atom_names, describe_target, key_id
from cf2.results.explanation import Explanation
from cf2.web.canvas import colours
from cf2.web.whatif import Edit, WhatIf, checked_edits, checked_units, describe_edit, explanation_shown, state_of


@dataclass(frozen=True)
class Download:
    """A button that saves a file, which is named as the button is, and what the file holds."""

    button: str
    place: str  # the component that hands it to the browser
    kind: str
    content: Callable[[WhatIf, Explanation, np.ndarray, Sequence[Edit]], str]


def callbacks(app: Any, asked: WhatIf) -> None:
    """Have the three buttons save."""
    _png_callback(app, asked)
    for made in DOWNLOADS:
        _download_callback(app, asked, made)


def _png_callback(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, State

    @app.callback(  # type: ignore[untyped-decorator]
        Output("cytoscape", "generateImage"),
        Input("png", "n_clicks"),
        State("shown", "data"),
        State("scheme", "data"),
        prevent_initial_call=True,
    )
    def png(clicks: Any, shown: Any, scheme: Any) -> Any:
        e = explanation_shown(asked, shown)
        options = {"bg": colours(scheme)["back"], "scale": 2, "full": True}
        return {"type": "png", "action": "download", "filename": f"{e.task}-{key_id(e.key)}", "options": options}


def _download_callback(app: Any, asked: WhatIf, made: Download) -> None:
    from dash import Input, Output, State, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output(made.place, "data"),
        Input(made.button, "n_clicks"),
        State("shown", "data"),
        State("removed", "data"),
        State("edits", "data"),
        prevent_initial_call=True,
    )
    def download(clicks: Any, shown: Any, removed: Any, edits: Any) -> Any:
        if not clicks:
            return no_update
        e = explanation_shown(asked, shown)
        extra = [] if asked.read_only else checked_edits(edits, asked.graph(e.key), e.directed)
        content = made.content(asked, e, checked_units(removed or [], e.num_units), extra)
        name = f"{e.task}-{key_id(e.key)}.{made.button}"
        return {"content": content, "filename": name, "type": made.kind, "base64": False}


def vector_picture(asked: WhatIf, e: Explanation, units: np.ndarray, edits: Sequence[Edit] = ()) -> str:
    """The explanation as one SVG file; after a change, what is removed, added and changed instead."""
    others = list(asked.explanations(e.key).values())
    drawn = scene(e, asked.context_of(e), others)
    if len(units) or edits:
        removed = np.zeros(e.num_units, dtype=bool)
        removed[units] = True
        now = scene(replace(e, selected=removed, question="counterfactual"), asked.context_of(e), others)
        drawn = _edited(asked, e, now, edits)
    made = str(svg.picture(drawn, describe_target(e), molecule=is_molecule(asked.context)))
    made = made.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" color="#1c2330" ', 1)
    return made.replace(">", f"><style>{svg.STYLE}</style>", 1)


def _edited(asked: WhatIf, e: Explanation, drawn: Scene, edits: Sequence[Edit]) -> Scene:
    """The scene with what the user has added and changed, as far as its nodes are drawn."""
    place = {node: number for number, node in enumerate(drawn.nodes.tolist())}
    pairs = [[place[u], place[v]] for _, u, v in (x for x in edits if x[0] == "add") if u in place and v in place]
    changed = dict(drawn.changed)
    for edit in (x for x in edits if x[0] == "change" and x[1] in place):
        text = describe_edit(edit, asked.graph(e.key), atom_names(asked.context), e.directed)
        changed[place[edit[1]]] = text.split(" ", 2)[2]  # without 'node 3,' or 'atom 3:'
    added = np.concatenate([drawn.added, np.array(pairs, dtype=np.int64).reshape(-1, 2)])
    return replace(drawn, edited=True, added=added, changed=changed)


def state_text(asked: WhatIf, e: Explanation, units: np.ndarray, edits: Sequence[Edit] = ()) -> str:
    """The state of the page as JSON, with all that repeats it."""
    return json.dumps(state_of(asked, e, units, edits), indent=1)


DOWNLOADS = (
    Download("svg", "download-svg", "image/svg+xml", vector_picture),
    Download("json", "download", "application/json", state_text),
)
