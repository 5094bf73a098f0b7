"""Ray: a cluster that is there, or one on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from cf2.errors import CF2Error
from cf2.results.explanation import Explanation
from cf2.runs.engines.local import cores
from cf2.runs.engines.outcome import Outcome, reason_of
from cf2.runs.engines.transfer import deserialise, serialise
from cf2.runs.session import Chunk, Request, Session
from cf2.spec import Key

AHEAD = 2  # chunks per CPU of the cluster that are with Ray at any time
ROOM = 256 << 20  # bytes of a local object store beside the graph


def run(
    request: Request, chunks: Iterable[Chunk], *, workers: int | None, retries: int, address: str | None
) -> Iterator[Outcome]:
    """Explain chunks as Ray tasks of one CPU each; Ray gives the chunk of a dead worker to another.

    On a cluster with more CPUs than `workers`, no more chunks than that are with Ray; else there are some ahead.
    """
    message, arrays = serialise(request)
    with connected(address, workers, sum(array.nbytes for array in arrays)) as ray:
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        most = workers if workers is not None and workers < cpus else AHEAD * cpus
        token = uuid.uuid4().hex
        parts = [ray.put(message), *(ray.put(array) for array in arrays)]
        explain = ray.remote(num_cpus=1, max_retries=retries)(_explain)
        waiting: dict[Any, Chunk] = {}
        source = iter(chunks)
        while True:
            while len(waiting) < most and (chunk := next(source, None)) is not None:
                waiting[explain.remote(token, parts, chunk.keys, os.getcwd())] = chunk
            if not waiting:
                return
            for done in ray.wait(list(waiting), num_returns=1)[0]:
                yield _outcome(ray, done, waiting.pop(done), retries)


def _outcome(ray: Any, done: Any, chunk: Chunk, retries: int) -> Outcome:
    try:
        found, reason = ray.get(done)
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[0]
        return Outcome(chunk, reason=f"its Ray worker failed {retries + 1} times: {first}")
    return Outcome(chunk, found, reason)


_SESSIONS: dict[str, Session] = {}  # in a Ray worker: the model is loaded once for all of its chunks


def _explain(token: str, parts: list[Any], keys: list[Key], directory: str) -> tuple[list[Explanation] | None, str]:
    import ray
    import torch

    try:
        if token not in _SESSIONS:
            _close_sessions()
            torch.set_num_threads(1)
            if directory not in sys.path:
                sys.path.append(directory)  # the user's own module may lie in the current directory
            message, *arrays = ray.get(parts)  # arrays are views of the object store
            session = Session(deserialise(message, [np.asarray(array) for array in arrays]))
            _SESSIONS[token] = session.__enter__()
        return _SESSIONS[token].explain(keys), ""
    except Exception as error:
        return None, reason_of(error)


def _close_sessions() -> None:
    for session in _SESSIONS.values():
        session.__exit__(None, None, None)
    _SESSIONS.clear()


@contextlib.contextmanager
def connected(address: str | None = None, workers: int | None = None, size: int = 0) -> Iterator[Any]:
    """Ray, as it is where it runs already; else connected or started here for graphs of `size` bytes, and ended."""
    try:
        import ray
    except ImportError as error:
        raise CF2Error(
            'Expected Ray for engine="ray"', got="no such package", do="Install it with: pip install 'cf2[ray]'"
        ) from error
    ours = not ray.is_initialized()
    if ours:
        options: dict[str, Any] = {"address": address or "local", "log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            # room for the graph and what goes back and forth; Ray would take a third of the machine
            options |= {"num_cpus": workers or cores(), "include_dashboard": False}
            options |= {"object_store_memory": 2 * size + ROOM}
        try:
            with contextlib.redirect_stdout(sys.stderr):
                ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise CF2Error(
                f"Expected a Ray cluster at {address!r}" if address else "Expected to start Ray on this machine",
                got=str(error).strip().splitlines()[0],
            ) from error
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()
