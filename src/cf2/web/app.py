"""The what-if page as a Dash app: every callback checks what it is given and answers from a `WhatIf`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error, extra
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web import browsing, explaining, saving, trying
from cf2.web.guard import LOOPBACK, protect
from cf2.web.labels import visible
from cf2.web.layout import layout
from cf2.web.summary import NOTHING, Shared
from cf2.web.whatif import SECONDS, Queue, WhatIf


def build_app(
    source: ModelAndData | None,
    found: Mapping[str, Explanations],
    *,
    hosts: frozenset[str] | None = LOOPBACK,
    notes: Sequence[str] = (),
    seconds: float = SECONDS,
    run: str = "",
    shared: Shared = NOTHING,
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
    run : str
        The name of the run, which stands in the address of the page.
    shared : Shared
        The patterns and edit rules of the run, if there are any.

    Returns
    -------
    dash.Dash
        Its `server` is a WSGI application, and `server.extensions["cf2"]` the `Queue` of what is being explained again.
    """
    asked, queue, app = WhatIf(source, found), Queue(seconds), _empty_app()
    run = visible(run)
    app.layout = lambda: layout(asked, notes, shared)
    browsing.callbacks(app, asked, run)
    explaining.callbacks(app, asked, queue)
    trying.callbacks(app, asked, run)
    saving.callbacks(app, asked)
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
            "Expected dash and dash-cytoscape to be installed", got="one that is missing", do=extra("web")
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
