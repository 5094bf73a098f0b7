"""Ray: a cluster that is there, or one on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from cf2.errors import CF2Error, extra, os_reason
from cf2.runs.engines.local import Outcome, attempt, cores, reason_of
from cf2.runs.engines.processes import deserialise, serialise
from cf2.runs.session import Chunk, Request, Session

AHEAD = 2  # chunks per CPU of the cluster that are with Ray at any time
LOOK = 1.0  # seconds after which one looks whether the cluster is still there
ESSENTIAL = ("raylet", "gcs_server")
ROOM = 256 << 20  # bytes of a local object store beside the graph
STARTING = "CF2_RAY_SECONDS"  # the environment variable for how long a start on this machine may take
PATIENCE = 3600.0  # what it is by default: on a machine whose cores are all busy, everything takes its time
WAITS = {  # Ray's own limits for the parts of a start here, which a busy machine exceeds; in how many parts of a second
    "RAY_gcs_server_port_wait_time_s": 1,
    "RAY_gcs_server_request_timeout_seconds": 1,
    "RAY_worker_register_timeout_seconds": 1,
    "RAY_agent_register_timeout_ms": 1000,
}
KNOCK = 30.0  # seconds for a cluster elsewhere to answer at all

log = logging.getLogger("cf2")


def run(
    request: Request, chunks: Iterable[Chunk], *, workers: int | None, retries: int, address: str | None
) -> Iterator[Outcome]:
    """Explain chunks as Ray tasks of one CPU each; Ray gives the chunk of a dead worker to another.

    On a cluster with more CPUs than `workers`, no more chunks than that are with Ray; else there are some ahead.
    """
    message, arrays = serialise(request)
    with connected(address, workers, sum(array.nbytes for array in arrays)) as ray:
        try:
            yield from _outcomes(ray, message, arrays, chunks, workers, retries)
        except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
            raise CF2Error(
                "Expected the Ray cluster to stay",
                got=_first_line(error),
                do="What is finished is kept; --resume goes on with it.",
            ) from error


def _outcomes(
    ray: Any, message: bytes, arrays: list[np.ndarray], chunks: Iterable[Chunk], workers: int | None, retries: int
) -> Iterator[Outcome]:
    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    most = workers if workers is not None and workers < cpus else AHEAD * cpus
    token = uuid.uuid4().hex
    parts = [ray.put(message), *(ray.put(array) for array in arrays)]
    explain = ray.remote(num_cpus=1, max_retries=retries)(_explain).options(num_returns="streaming")
    waiting: dict[Any, Chunk] = {}
    source = iter(chunks)
    while True:
        while len(waiting) < most and (chunk := next(source, None)) is not None:
            waiting[explain.remote(token, parts, chunk, os.getcwd())] = chunk
        if not waiting:
            return
        done, _ = ray.wait(list(waiting), num_returns=1, timeout=LOOK)
        if not done:
            _refuse_ended(ray)
        for stream in done:
            outcome = _next(ray, stream, waiting[stream], retries)
            if outcome.ended:
                del waiting[stream]
            yield outcome


def _refuse_ended(ray: Any) -> None:
    """Say that a part of a cluster of ours has ended: Ray would end this process some seconds later, without a word."""
    node = getattr(ray._private.worker, "_global_node", None)
    dead = [kind for kind, _ in node.dead_processes() if kind in ESSENTIAL] if node is not None else []
    if dead:
        raise ConnectionError(f"a {dead[0]} that has ended")


def _next(ray: Any, stream: Any, chunk: Chunk, retries: int) -> Outcome:
    """What comes next of a chunk; its worker may have died for good."""
    try:
        found, reason, ended = ray.get(next(stream))
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
        why = f"its Ray worker failed {retries + 1} times: {_first_line(error)}"
        return Outcome(chunk, reason=why, ended=True)
    return Outcome(chunk, found, reason, ended)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_SESSIONS: dict[str, Session] = {}  # in a Ray worker: the model is loaded once for all of its chunks


def _explain(token: str, parts: list[Any], chunk: Chunk, directory: str) -> Iterator[tuple[Any, str, bool]]:
    """The outcomes of a chunk, in a worker."""
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
    except Exception as error:
        yield [], reason_of(error), True
        return
    for outcome in attempt(_SESSIONS[token], chunk):
        yield outcome.found, outcome.reason, outcome.ended


def _close_sessions() -> None:
    for session in _SESSIONS.values():
        session.__exit__(None, None, None)
    _SESSIONS.clear()


def imported() -> Any:
    """Ray, or an error that says how to install it."""
    try:
        import ray
    except ImportError as error:
        raise CF2Error('Expected Ray for engine="ray"', got="no such package", do=extra("ray")) from error
    return ray


@contextlib.contextmanager
def connected(address: str | None = None, workers: int | None = None, size: int = 0) -> Iterator[Any]:
    """Ray, as it is where it runs already; else connected or started here for graphs of `size` bytes, and ended."""
    ray = imported()
    ours = not ray.is_initialized()
    with _own_signals():
        _connect(ray, ours, address, workers, size)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, ours: bool, address: str | None, workers: int | None, size: int) -> None:
    if ours and address is None:
        # room for the graph and what goes back and forth; Ray would take a third of the machine
        room = {"num_cpus": workers or cores(), "include_dashboard": False, "object_store_memory": 2 * size + ROOM}
        with _waits():
            _start(ray, {"address": "local", **room}, _patience())
    elif ours:
        _knock(str(address))
        _start(ray, {"address": address})


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray puts a handler of its own for SIGTERM in place, which ends the process somewhere inside of Ray."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _waits() -> Iterator[None]:
    """Within this, Ray waits for its own parts as long as we do."""
    waits = {name: str(int(_patience() * parts)) for name, parts in WAITS.items() if name not in os.environ}
    os.environ.update(waits)
    try:
        yield
    finally:
        for name in waits:
            os.environ.pop(name, None)


def _knock(address: str) -> None:
    """Refuse an address at which nothing answers; Ray would try for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return  # a name that only Ray understands
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()
    except (OSError, OverflowError) as error:
        raise CF2Error(f"Expected a Ray cluster at {address!r}", got=os_reason(error)) from error


def _start(ray: Any, options: dict[str, Any], patience: float = 0.0) -> None:
    """Start Ray or connect to it; where it gives up because the machine is busy, try again for `patience` seconds."""
    started = time.monotonic()
    while True:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                ray.init(**options, log_to_driver=False, logging_level="ERROR")
            return
        except Exception as error:  # Ray raises bare ones, too
            ray.shutdown()
            slow = isinstance(error, TimeoutError) or "timed out" in str(error).lower()
            if slow and time.monotonic() - started < patience:
                log.warning("Ray did not start in its own time (%s); trying again.", _first_line(error))
                continue
            here = options["address"] == "local"
            what = "to start Ray on this machine" if here else f"a Ray cluster at {options['address']!r}"
            raise CF2Error(f"Expected {what}", got=_first_line(error)) from error


def _patience() -> float:
    try:
        return float(os.environ.get(STARTING, PATIENCE))
    except ValueError:
        raise CF2Error(f"Expected {STARTING} to be a number of seconds", got=repr(os.environ[STARTING])) from None
