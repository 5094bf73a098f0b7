"""`build_app`, the what-if page as a WSGI application; and `serve`, which opens a run and answers a browser."""

from __future__ import annotations

import json
import logging
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from flask import Flask, Response, g, request

from cf2.errors import CF2Error, require
from cf2.models.soft_masks import single_thread
from cf2.patterns.edit_rules import EditRules
from cf2.patterns.summary import Patterns
from cf2.report.words import describe_target, key_id
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.runs.store import Store
from cf2.samples.sources import restore
from cf2.web import page
from cf2.web.searches import MAX_SECONDS, Searches, find
from cf2.web.server import Sent, is_loopback, listening_socket, protect, started
from cf2.web.whatif import WhatIf

log = logging.getLogger("cf2.web")


def build_app(
    source: ModelAndData | None,
    found: Mapping[str, Explanations],
    *,
    notes: Sequence[str] = (),
    seconds: float = MAX_SECONDS,
    run: str = "",
    patterns: Patterns | None = None,
    rules: EditRules | None = None,
    token: str | None = None,
    command: str = "",
) -> Flask:
    """The page about one model and its data.

    Parameters
    ----------
    source : ModelAndData or None
        What was explained; None: the page shows what was stored, and asks no model.
    found : mapping of str to Explanations
        The explanations by method.
    notes : sequence of str
        What stands at the top of the page.
    seconds : float
        How long "explain again" may take.
    run : str
        The name of the run, which stands in the address of the page.
    patterns, rules : Patterns, EditRules, optional
        What the explanations of the run share.
    token : str, optional
        What a browser must send once, as `?token=…`, to be answered; None: nothing.
    command : str
        Of a page without a model: the command that serves it with one.

    Returns
    -------
    flask.Flask
        A WSGI application; its `extensions["cf2"]` is the `Searches` of the page.
    """
    whatif, searches = WhatIf(source, found, run), Searches(seconds)
    app = Flask("cf2.web", static_folder=None)
    app.extensions["cf2"] = searches
    protect(app, token)

    @app.get("/")
    def start() -> str:
        return page.page_html(whatif, notes, patterns, rules, command, g.nonce)

    @app.get("/listing")
    def listing() -> Any:
        return page.listing(whatif, request.args.get("method"))

    @app.post("/state")
    def state() -> Any:
        given = Sent.read()
        return page.show(whatif, page.state_of(whatif, given), given.get("near", ()))

    @app.get("/comparison")
    def comparison() -> str:
        return page.comparison(whatif, request.args.get("key"))

    @app.get("/save")
    def save() -> Response:
        """The state of the address, as a file."""
        kind, shown = request.args["kind"], whatif.state_at("?" + request.query_string.decode())
        if shown is None or kind not in ("svg", "json"):
            raise CF2Error("Expected the address of a state, and kind=svg or json", got=request.url[-80:])
        text = page.svg_file(whatif, shown) if kind == "svg" else json.dumps(whatif.to_dict(shown), indent=1)
        name = f'attachment; filename="{shown.e.task}-{key_id(shown.e.key)}.{kind}"'
        mime = "image/svg+xml" if kind == "svg" else "application/json"
        return Response(text, mimetype=mime, headers={"Content-Disposition": name})

    @app.post("/search")
    def search() -> Any:
        given = Sent.read()
        e = whatif.explanation(whatif.key(given["key"]), given["method"])
        name, said = find(whatif, searches, e, given)
        return {"note": f"{describe_target(e)}: {said}", "method": name}

    @app.get("/progress")
    def progress() -> str:
        return searches.progress()

    @app.post("/cancel")
    def cancel() -> str:
        searches.cancel()
        return ""

    return app


def serve(
    run: str | Path | Store,
    *,
    host: str = "127.0.0.1",
    port: int = 8050,
    trust: bool = False,
    seconds: float = MAX_SECONDS,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the page for one run until interrupted.

    Parameters
    ----------
    run : str, Path or Store
        The run, or its directory.
    host, port : str, int
        Where to listen; port 0 takes a free one.
    trust : bool
        Whether a function of yours that the run names may be run. Without, the page of such a run is read-only.
    seconds : float
        How long "explain again" may take.
    ready : callable, optional
        Called with the address when the page can be opened; a token in it lets a browser in.
    """
    opened = run if isinstance(run, Store) else Store.open(Path(run).expanduser())
    with closing(listening_socket(host, port)) as listening:  # before anything that takes time
        if not is_loopback(listening):
            visitors = "everyone who can reach this machine and has the address with its token can run the model."
            warnings.warn(f"Listening on {host}: {visitors}", stacklevel=2)
        token = secrets.token_urlsafe(24)
        found, source = explanations(opened), opened.source or _restored(opened, trust)
        app = build_app(
            source,
            found,
            notes=_notes(opened, found, source),
            seconds=seconds,
            run=opened.path.resolve().name,
            **_summaries(opened),
            token=token,
            command=f"cf2 serve {opened.path} --trust",
        )
        with single_thread(), started(app, listening) as server:
            if ready is not None:
                ready(f"http://{f'[{host}]' if ':' in host else host}:{server.effective_port}/?token={token}")
            server.run()


def explanations(run: Store) -> dict[str, Explanations]:
    """What is finished in a run, by method and question, and by seed where a method has several."""
    found: dict[str, Explanations] = {}
    for row, job in ((row, job) for row, jobs in run.rows().items() for job in jobs):
        every = run.explanations(job.method, job.seed, job.question)
        name = row if row not in found else f"{row}, seed {job.seed}"
        found[name] = Explanations(tuple(e for e in every if e.seed == job.seed), every.context)
    require(any(map(len, found.values())), f"Expected finished explanations in {str(run.path)!r}", got="none yet")
    return found


def _restored(run: Store, trust: bool) -> ModelAndData | None:
    """The model and data of a run; None where that would run a function that nobody has said to trust."""
    described = run.manifest.get("source")
    names_code = isinstance(described, Mapping) and described.get("kind") == "function"
    return None if names_code and not trust else restore(described or {}, trust=trust)


def _notes(run: Store, found: Mapping[str, Explanations], source: ModelAndData | None) -> list[str]:
    """What stands at the top of the page: how much is finished, if not all, and whether a model can be asked."""
    total = len(run.keys)
    partial = {name: f"{len(given):,} of {total:,} explained" for name, given in found.items() if len(given) < total}
    said = [f"{name}: {text}" if len(found) > 1 else text for name, text in partial.items()]
    notes = [f"{'; '.join(said)}."] if said else []
    if source is None:
        function = run.manifest["source"].get("function")
        notes.append(f"The model of this run comes from your function {function}, which is not run without --trust.")
    return notes


def _summaries(run: Store) -> dict[str, Any]:
    """The patterns and edit rules that the directory of a run holds; a file that cannot be read is left out."""
    found: dict[str, Any] = {}
    for name, kind in (("patterns", Patterns), ("rules", EditRules)):
        try:
            found[name] = kind.of_run(run.path, run.context())
        except CF2Error as error:
            log.warning("%s", error)
    return found
