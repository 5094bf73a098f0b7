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
import torch

from cf2.errors import CF2Error, extra, os_reason
from cf2.runs.engines.machine import Engine, Outcome, Resources, attempt, cores, deserialise, reason_of, serialise
from cf2.runs.session import Chunk, Request, Session

CHUNKS_PER_CPU = 2  # that are with Ray at any time
SECONDS_BETWEEN_LOOKS = 1.0  # whether the cluster is still there
ESSENTIAL = ("raylet", "gcs_server")  # the parts of Ray without which nothing goes on
STORE_BYTES = 256 << 20  # of a local object store, beside the graph
START_SECONDS = "CF2_RAY_SECONDS"  # the environment variable for how long a start on this machine may take
DEFAULT_START_SECONDS = 3600.0  # on a machine whose cores are all busy, everything takes its time
RAY_LIMITS = {  # Ray's own limits for the parts of a start here, which a busy machine exceeds; their units per second
    "RAY_gcs_server_port_wait_time_s": 1,
    "RAY_gcs_server_request_timeout_seconds": 1,
    "RAY_worker_register_timeout_seconds": 1,
    "RAY_agent_register_timeout_ms": 1000,
}
ANSWER_SECONDS = 30.0  # for a cluster elsewhere to answer at all

log = logging.getLogger("cf2")


def imported() -> Any:
    """Ray, or an error that says how to install it."""
    try:
        import ray
    except ImportError as error:
        raise CF2Error('Expected Ray for engine="ray"', got="no such package", do=extra("ray")) from error
    return ray


def _run(request: Request, chunks: Iterable[Chunk], resources: Resources) -> Iterator[Outcome]:
    """Explain chunks as Ray tasks of one CPU each; Ray gives the chunk of a dead worker to another."""
    message, buffers = serialise(request)
    arrays = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
    with connected(resources.address, resources.workers, sum(array.nbytes for array in arrays)) as ray:
        try:
            yield from _outcomes(ray, [ray.put(part) for part in (message, *arrays)], chunks, resources)
        except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
            raise CF2Error(
                "Expected the Ray cluster to stay",
                got=_first_line(error),
                do="What is finished is kept; --resume goes on with it.",
            ) from error


def _outcomes(ray: Any, parts: list[Any], chunks: Iterable[Chunk], resources: Resources) -> Iterator[Outcome]:
    """If the cluster has more CPUs than `workers`, no more chunks than that are with Ray; else there are some ahead."""
    cpus, workers = max(1, int(ray.cluster_resources().get("CPU", 1))), resources.workers
    most = workers if workers is not None and workers < cpus else CHUNKS_PER_CPU * cpus
    token = uuid.uuid4().hex
    explain = ray.remote(num_cpus=1, max_retries=resources.retries)(_explain).options(num_returns="streaming")
    waiting: dict[Any, Chunk] = {}
    source = iter(chunks)
    while True:
        while len(waiting) < most and (chunk := next(source, None)) is not None:
            waiting[explain.remote(token, parts, chunk, os.getcwd())] = chunk
        if not waiting:
            return
        done, _ = ray.wait(list(waiting), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
        if not done:
            _refuse_ended(ray)
        for stream in done:
            try:
                outcome = ray.get(next(stream))
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                reason = f"its Ray worker failed {resources.retries + 1} times: {_first_line(error)}"
                outcome = Outcome(waiting[stream], reason=reason, ended=True)
            if outcome.ended:
                del waiting[stream]
            yield outcome


def _refuse_ended(ray: Any) -> None:
    """Say that a part of a cluster of ours has ended: Ray would end this process some seconds later, without a word."""
    node = getattr(ray._private.worker, "_global_node", None)
    dead = [kind for kind, _ in node.dead_processes() if kind in ESSENTIAL] if node is not None else []
    if dead:
        raise ConnectionError(f"a {dead[0]} that has ended")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_SESSIONS: dict[str, Session] = {}  # in a Ray worker: the model is loaded once for all of its chunks


def _explain(token: str, parts: list[Any], chunk: Chunk, directory: str) -> Iterator[Outcome]:
    """The outcomes of a chunk, in a worker."""
    import ray

    try:
        if token not in _SESSIONS:
            while _SESSIONS:
                _SESSIONS.popitem()[1].__exit__(None, None, None)
            torch.set_num_threads(1)
            if directory not in sys.path:
                sys.path.append(directory)  # the user's own module may lie in the current directory
            message, *arrays = ray.get(parts)  # arrays are views of the object store
            _SESSIONS[token] = Session(deserialise(message, arrays)).__enter__()
    except Exception as error:
        yield Outcome(chunk, reason=reason_of(error), ended=True)
        return
    yield from attempt(_SESSIONS[token], chunk)


@contextlib.contextmanager
def connected(address: str | None = None, workers: int | None = None, size: int = 0) -> Iterator[Any]:
    """Ray, as it is where it runs already; else connected or started here for graphs of `size` bytes, and ended."""
    ray = imported()
    if ray.is_initialized():
        yield ray
        return
    # Ray puts a handler of its own for SIGTERM in place, which ends the process somewhere inside of Ray.
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address is None:
            _start(ray, workers, size)
        else:
            _knock(address)
            _init(ray, f"a Ray cluster at {address!r}", address=address)
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)
    try:
        yield ray
    finally:
        ray.shutdown()


RAY = Engine("ray", _run, imported, connected)


def _start(ray: Any, workers: int | None, size: int) -> None:
    """Start Ray on this machine, and let it wait for its own parts as long as we do."""
    try:
        patience = float(os.environ.get(START_SECONDS, DEFAULT_START_SECONDS))
    except ValueError:
        got = repr(os.environ[START_SECONDS])
        raise CF2Error(f"Expected {START_SECONDS} to be a number of seconds", got=got) from None
    limits = {name: str(int(patience * units)) for name, units in RAY_LIMITS.items() if name not in os.environ}
    os.environ.update(limits)
    # Room for the graph and what goes back and forth; Ray would take a third of the machine.
    room = {"num_cpus": workers or cores(), "include_dashboard": False, "object_store_memory": 2 * size + STORE_BYTES}
    try:
        _init(ray, "to start Ray on this machine", patience, address="local", **room)
    finally:
        for name in limits:
            os.environ.pop(name, None)


def _init(ray: Any, what: str, patience: float = 0.0, **options: Any) -> None:
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
            if not slow or time.monotonic() - started >= patience:
                raise CF2Error(f"Expected {what}", got=_first_line(error)) from error
            log.warning("Ray did not start in its own time (%s); trying again.", _first_line(error))


def _knock(address: str) -> None:
    """Refuse an address at which nothing answers; Ray would try for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return  # a name that only Ray understands
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise CF2Error(f"Expected a Ray cluster at {address!r}", got=os_reason(error)) from error
