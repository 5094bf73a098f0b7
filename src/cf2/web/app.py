"""The what-if page as a Dash app: every callback checks what it is given and answers from a `WhatIf`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error, require
from cf2.report.scene import scene
from cf2.report.sentences import class_names, describe_prediction, key_id
from cf2.report.unit_words import adds_or_changes, count_nouns
from cf2.results.explanations import Explanations
from cf2.runs.model_and_data import ModelAndData
from cf2.web import explaining, trying, view
from cf2.web.again import SECONDS, Queue
from cf2.web.changes import checked_units, explanation_shown, state_of
from cf2.web.guard import LOOPBACK, protect
from cf2.web.layout import layout
from cf2.web.listing import page
from cf2.web.trial import checked_edits
from cf2.web.whatif import WhatIf


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
    explaining.callbacks(app, asked, queue)
    _picture_callbacks(app, asked)
    trying.callbacks(app, asked)
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


def _picture_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("cytoscape", "elements"),
        Output("cytoscape", "layout"),
        Output("prediction", "children"),
        Output("caption", "children"),
        Output("shown", "data"),
        Output("without", "children"),
        Input("key", "data"),
        Input("method", "value"),
    )
    def show(key: Any, method: Any) -> Any:
        every = asked.explanations(asked.key(key))
        if not isinstance(method, str) or method not in every:
            return (no_update,) * 6  # the method belongs to another instance and is about to change
        e = every[method]
        drawn = scene(e, asked.context_of(e), list(every.values()))
        preset = {"name": "preset", "fit": True, "padding": 24, "instance": f"{key} {method}"}
        said = describe_prediction(e, class_names(asked.context))
        where = {"key": key, "method": method}
        button = "Make the edits" if adds_or_changes(e) else "Remove the explanation"
        return view.elements(e, drawn), preset, said, drawn.caption, where, button


def _export_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, State, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("cytoscape", "generateImage"),
        Input("png", "n_clicks"),
        State("shown", "data"),
        prevent_initial_call=True,
    )
    def picture(clicks: Any, shown: Any) -> Any:
        e = explanation_shown(asked, shown)
        options = {"bg": "#ffffff", "scale": 2, "full": True}
        return {"type": "png", "action": "download", "filename": f"{e.task}-{key_id(e.key)}", "options": options}

    @app.callback(  # type: ignore[untyped-decorator]
        Output("download", "data"),
        Input("json", "n_clicks"),
        State("shown", "data"),
        State("removed", "data"),
        State("edits", "data"),
        prevent_initial_call=True,
    )
    def state(clicks: Any, shown: Any, removed: Any, edits: Any) -> Any:
        if not clicks:
            return no_update
        e = explanation_shown(asked, shown)
        extra = checked_edits(edits, asked.graph(e.key), e.directed)
        made = json.dumps(state_of(asked, e, checked_units(removed, e.num_units), extra), indent=1)
        return {
            "content": made,
            "filename": f"{e.task}-{key_id(e.key)}.json",
            "type": "application/json",
            "base64": False,
        }
