"""`serve`: open a run and answer a browser on this machine."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path

from cf2.errors import CF2Error, require, require_number
from cf2.paper.sources import restore
from cf2.results.explanations import Explanations
from cf2.runs.directory import Run, open_run
from cf2.web.app import build_app
from cf2.web.guard import LOOPBACK

log = logging.getLogger("cf2.web")


def serve(
    run: str | Path | Run,
    *,
    host: str = "127.0.0.1",
    port: int = 8050,
    root: str | Path | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the page for one run until interrupted.

    Parameters
    ----------
    run : str, Path or Run
        The run, or its directory.
    host, port : str, int
        Where to listen; port 0 takes a free one.
    root : str or Path, optional
        A run outside of this directory is refused, also one that a link leads to.
    ready : callable, optional
        Called with the address when the page can be opened.
    """
    require_number("port", port, 0, 65535, integer=True)
    opened = run if isinstance(run, Run) else open_run(inside(run, root))
    found = explanations(opened)
    loopback = _loopback(host)
    app = build_app(opened.source or restore(opened.manifest["source"]), found, hosts=LOOPBACK if loopback else None)
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    try:  # werkzeug exits where a port is taken
        server = make_server(host, port, app.server, threaded=True)
    except (OSError, SystemExit) as error:
        raise CF2Error(f"Expected to listen on {host}:{port}", got=f"{error}", do="Choose another port.") from error
    address = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/"
    log.info("Serving %s", address)
    try:
        if ready is not None:
            ready(address)
        server.serve_forever()
    except KeyboardInterrupt:
        log.info("Stopped")
    finally:
        server.server_close()


def _loopback(host: str) -> bool:
    """Whether only this machine can reach the host; warns if others can."""
    if host in LOOPBACK:
        return True
    warnings.warn(
        f"Listening on {host}: everyone who can reach this machine can use the page and run the model.", stacklevel=3
    )
    return False


def inside(path: str | Path, root: str | Path | None) -> Path:
    """The path with its links resolved, refused where it is not below `root`."""
    resolved = Path(path).expanduser().resolve()
    if root is not None:
        top = Path(root).expanduser().resolve()
        require(
            resolved == top or top in resolved.parents, f"Expected a run inside of {str(top)!r}", got=repr(str(path))
        )
    return resolved


def explanations(run: Run) -> dict[str, Explanations]:
    """What is finished in a run, by method, and by seed where a method has several."""
    found: dict[str, Explanations] = {}
    for job in run.jobs():
        every = run.explanations(job.method, job.seed)
        given = Explanations(tuple(e for e in every if e.seed == job.seed), every.context)
        name = job.method if job.method not in found else f"{job.method}, seed {job.seed}"
        if len(given):
            found[name] = given
    require(bool(found), f"Expected finished explanations in {str(run.path)!r}", got="none yet")
    return found
