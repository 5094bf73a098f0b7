"""`serve`: open a run and answer a browser on this machine."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error, extra, require
from cf2.models.soft_masks import single_thread
from cf2.patterns.edit_rules import EditRules
from cf2.patterns.summary import Patterns
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.runs.store import Store
from cf2.samples.sources import restore
from cf2.web.app import build_app
from cf2.web.guard import LOOPBACK, Server, is_loopback, listening_socket
from cf2.web.labels import visible_context
from cf2.web.summary import Shared
from cf2.web.whatif import SECONDS

UNTRUSTED = (
    "Read-only: the model of this run comes from the function {function}, which is not run unless you trust it; "
    "what-if needs --trust (trust=True)."
)

log = logging.getLogger("cf2.web")


def serve(
    run: str | Path | Store,
    *,
    host: str = "127.0.0.1",
    port: int = 8050,
    root: str | Path | None = None,
    trust: bool = False,
    seconds: float = SECONDS,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the page for one run until interrupted.

    Parameters
    ----------
    run : str, Path or Store
        The run, or its directory.
    host, port : str, int
        Where to listen; port 0 takes a free one.
    root : str or Path, optional
        A run outside of this directory is refused, also one that a link leads to.
    trust : bool
        Whether a function of yours that the run names may be run. Without, the page of such a run is read-only.
    seconds : float
        How long "explain again" may take.
    ready : callable, optional
        Called with the address when the page can be opened.
    """
    try:
        pass
    except ImportError as error:
        raise CF2Error("Expected waitress to be installed", got="no such package", do=extra("web")) from error
    opened = run if isinstance(run, Store) else Store.open(inside(run, root))
    with closing(listening_socket(host, port)) as listening:  # before anything that takes time
        hosts = LOOPBACK | {host.lower()} if is_loopback(listening) else None
        if hosts is None:
            _warn_of_visitors(host)
        found, source = explanations(opened), opened.source or _restored(opened, trust)
        about: dict[str, Any] = {
            "notes": notes(opened, found, source),
            "run": opened.path.resolve().name,
            "shared": shared_by(opened),
        }
        app = build_app(source, found, hosts=hosts, seconds=seconds, **about)
        with single_thread(), Server(app.server, listening) as server, closing(app.server.extensions["cf2"]):
            address = f"http://{f'[{host}]' if ':' in host else host}:{server.port}/"
            log.debug("Serving %s", address)
            try:
                if ready is not None:
                    ready(address)
                server.serve_forever()
            except KeyboardInterrupt:
                log.info("Stopped")


def _warn_of_visitors(host: str) -> None:
    """Warn that others can reach the page."""
    warnings.warn(
        f"Listening on {host}: everyone who can reach this machine can use the page and run the model.", stacklevel=3
    )


def _restored(run: Store, trust: bool) -> ModelAndData | None:
    """The model and data of a run; None where that would run a function that nobody has said to trust."""
    described = run.manifest.get("source")
    names_code = isinstance(described, Mapping) and described.get("kind") == "function"
    return None if names_code and not trust else restore(described or {}, trust=trust)


def notes(run: Store, found: Mapping[str, Explanations], source: ModelAndData | None) -> list[str]:
    """What stands at the top of the page: how much is finished, if not all, and whether a model can be asked."""
    total = len(run.keys)
    partial = {name: f"{len(given):,} of {total:,} explained" for name, given in found.items() if len(given) < total}
    said = [f"{name}: {text}" if len(found) > 1 else text for name, text in partial.items()]
    untrusted = [] if source is not None else [UNTRUSTED.format(function=run.manifest["source"].get("function"))]
    return [*([f"{'; '.join(said)}."] if said else []), *untrusted]


def shared_by(run: Store) -> Shared:
    """The patterns and edit rules that the directory of a run holds; a file that cannot be read is left out."""
    found: dict[str, Any] = {}
    for name, kind in (("patterns", Patterns), ("rules", EditRules)):
        try:
            found[name] = kind.of_run(run.path, visible_context(run.context()))
        except CF2Error as error:
            log.warning("%s", error)
    return Shared(**found)


def inside(path: str | Path, root: str | Path | None) -> Path:
    """The path with its links resolved, refused where it is not below `root`."""
    resolved = Path(path).expanduser().resolve()
    if root is not None:
        top = Path(root).expanduser().resolve()
        require(
            resolved == top or top in resolved.parents, f"Expected a run inside of {str(top)!r}", got=repr(str(path))
        )
    return resolved


def explanations(run: Store) -> dict[str, Explanations]:
    """What is finished in a run, by method and question, and by seed where a method has several."""
    found: dict[str, Explanations] = {}
    for row, job in ((row, job) for row, jobs in run.rows().items() for job in jobs):
        every = run.explanations(job.method, job.seed, job.question)
        name = row if row not in found else f"{row}, seed {job.seed}"
        found[name] = Explanations(tuple(e for e in every if e.seed == job.seed), every.context)
    require(any(map(len, found.values())), f"Expected finished explanations in {str(run.path)!r}", got="none yet")
    return found
