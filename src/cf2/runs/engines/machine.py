"""What an engine is, and the engines of this machine: this process, and several that share their big arrays.

The chunk of a process that dies goes to another.
"""

from __future__ import annotations

import io
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
import torch

from cf2.errors import CF2Error
from cf2.options import Key
from cf2.results.explanation import Explanation
from cf2.runs.session import Chunk, Request, Session

MIN_SHARED_BYTES = 1 << 16  # below that, looking an array up costs as much as sending it
ALIGNMENT = 64  # bytes
READY = "ready"  # what a worker says when it has loaded the model
SECONDS_TO_DIE = 60  # for a worker that has hung up to end, so that one can say what it died of


class Resources(NamedTuple):
    """What an engine may use: how many workers, where, and how often the chunk of a dead worker is given to another."""

    workers: int | None = None
    address: str | None = None
    retries: int = 2


@dataclass(frozen=True, eq=False)
class Outcome:
    """Some explanations of a chunk, or its end, with the reason where it ended too early."""

    chunk: Chunk
    found: list[Explanation] = field(default_factory=list)
    reason: str = ""
    ended: bool = False


@dataclass(frozen=True)
class Engine:
    """One row: everything about a place where chunks are explained.

    `run` gives the outcomes of chunks in any order; it reads the chunks as it proceeds. `check` refuses what is not
    installed. Within `ready(address, workers, size)`, calls share what would be started for each.
    """

    name: str
    run: Callable[[Request, Iterable[Chunk], Resources], Iterator[Outcome]]
    check: Callable[[], Any] = lambda: None
    ready: Callable[[str | None, int | None, int], AbstractContextManager[Any]] = lambda *_: nullcontext()


class ChunksFailed(CF2Error):
    """Some chunks could not be explained; the others were."""

    def __init__(self, failed: Sequence[Outcome], finished: int, stopped: bool) -> None:
        self.failed = list(failed)
        parts = [f"chunk {o.chunk.number} ({_keys(o.chunk.keys)}): {o.reason}" for o in failed[:5]]
        if len(failed) > 5:
            parts.append(f"and {len(failed) - 5} more chunks")
        keys = sum(len(o.chunk.keys) for o in failed)
        counts = f"{len(failed)} failed chunks of {keys} keys beside {finished} finished ones"
        there = ", and stopped there" if stopped else ""
        super().__init__("Expected to explain every key", got="\n  ".join([f"{counts}{there}:", *parts]))

    def __reduce__(self) -> tuple[type[CF2Error], tuple[str]]:
        return CF2Error, (str(self),)


def _keys(keys: Sequence[Key]) -> str:
    if len(keys) == 1:
        return f"key {keys[0]}"
    return "keys " + ", ".join(map(str, keys[:4])) + (f", … {keys[-1]}" if len(keys) > 4 else "")


def attempt(session: Session, chunk: Chunk) -> Iterator[Outcome]:
    """The parts of a chunk and its end, or what went wrong. Trying again would go wrong in the same way."""
    try:
        for found in session.parts(chunk):
            yield Outcome(chunk, found)
    except Exception as error:
        yield Outcome(chunk, reason=reason_of(error), ended=True)
    else:
        yield Outcome(chunk, ended=True)


def reason_of(error: Exception) -> str:
    """An error in one line; ours speak for themselves."""
    return str(error) if isinstance(error, CF2Error) else f"{type(error).__name__}: {error}"


def cores() -> int:
    """How many cores this process may use; not every system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_here(request: Request, chunks: Iterable[Chunk], resources: Resources) -> Iterator[Outcome]:
    with Session(request) as session:
        for chunk in chunks:
            yield from attempt(session, chunk)


LOCAL = Engine("local", _run_here)

# -- processes ------------------------------------------------------------------------------------------------


def serialise(request: Request) -> tuple[bytes, list[memoryview]]:
    """The request as a message, and the memory of its big arrays, which the message leaves out.

    Nothing is moved or changed: torch's own sharing would swap the memory under tensors that the user holds.
    """
    stream, buffers = io.BytesIO(), list[memoryview]()

    def take(buffer: pickle.PickleBuffer) -> bool:
        """Keep a big buffer; True leaves a small one in the message."""
        raw = buffer.raw()
        if raw.nbytes >= MIN_SHARED_BYTES:
            buffers.append(raw)
        return raw.nbytes < MIN_SHARED_BYTES

    try:
        _Pickler(stream, protocol=5, buffer_callback=take).dump(request)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CF2Error(
            "Expected a model that can be sent to another process",
            got=error,
            do='Define its class at the top level of a module, or use engine="local".',
        ) from error
    return stream.getvalue(), buffers


def deserialise(message: bytes, buffers: Sequence[Any]) -> Request:
    """The request again, on top of the given memory."""
    request = pickle.loads(message, buffers=buffers)
    assert isinstance(request, Request)
    return request


class _Pickler(pickle.Pickler):
    """Takes big tensors as arrays, whose memory pickle hands out instead of copying it."""

    def reducer_override(self, item: Any) -> Any:
        if type(item) not in (torch.Tensor, torch.nn.Parameter):
            return NotImplemented
        plain = item.layout == torch.strided and item.device.type == "cpu" and item.dtype != torch.bfloat16
        if not plain or (item.requires_grad and not item.is_leaf):
            return NotImplemented
        if item.untyped_storage().nbytes() <= item.nbytes < MIN_SHARED_BYTES:
            return NotImplemented  # of a slice of what all graphs of a data set lie in, torch would send all
        array = np.ascontiguousarray(item.detach().numpy())
        return _tensor, (array, isinstance(item, torch.nn.Parameter), item.requires_grad)


def _tensor(array: np.ndarray, is_parameter: bool, requires_grad: bool) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the array may be read-only, and nothing writes to it
        tensor = torch.from_numpy(array)
    return torch.nn.Parameter(tensor, requires_grad) if is_parameter else tensor.requires_grad_(requires_grad)


class SharedBuffers:
    """Buffers copied once to where every process of this machine can see them.

    That is memory without a name, which the system frees with the last process that has it, even if that is killed.
    A process that is started with this gets the buffers.
    """

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        self.places: list[slice] = []
        has_memory = hasattr(os, "memfd_create")  # else the file is one of the disk
        self.file = os.fdopen(os.memfd_create("cf2"), "w+b") if has_memory else tempfile.TemporaryFile()  # noqa: SIM115
        for buffer in buffers:
            start = self.file.tell()
            self.places.append(slice(start, start + buffer.nbytes))
            self.file.write(buffer)
            self.file.seek(-buffer.nbytes % ALIGNMENT, os.SEEK_CUR)
        self.file.flush()

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (reduction.DupFd(self.file.fileno()), self.places)


def _attach(handle: Any, places: Sequence[slice]) -> list[memoryview]:
    """The buffers that another process shares."""
    number = handle.detach()
    memory = memoryview(mmap.mmap(number, 0, access=mmap.ACCESS_READ) if places else b"")
    os.close(number)
    return [memory[place] for place in places]


def _run(request: Request, chunks: Iterable[Chunk], resources: Resources) -> Iterator[Outcome]:
    message, buffers = serialise(request)
    shared = SharedBuffers(buffers)
    with shared.file, closing(_Pool((message, shared, os.getcwd()), resources)) as pool:
        yield from pool.outcomes(iter(chunks))


PROCESSES = Engine("processes", _run)


@dataclass(eq=False)
class _Worker:
    process: Any
    connection: Connection
    chunk: Chunk | None = None  # that it is doing
    ready: bool = False  # it has loaded the model


class _Pool:
    """Workers, of which each has one chunk at a time; one that dies is replaced."""

    def __init__(self, given: tuple[Any, ...], resources: Resources) -> None:
        self.given, self.size, self.retries = given, resources.workers or cores(), resources.retries
        self.context = worker_context()
        self.workers: list[_Worker] = []
        self.returned: list[Chunk] = []  # by workers that died
        self.deaths: dict[int, int] = {}  # by the number of the chunk that a worker died of

    def outcomes(self, chunks: Iterator[Chunk]) -> Iterator[Outcome]:
        while True:
            self._hand_out(chunks)
            busy: dict[Any, _Worker] = {worker.connection: worker for worker in self.workers if worker.chunk}
            if not busy:
                return
            for connection in wait(list(busy)):
                outcome = self._receive(busy[connection])
                if outcome is not None:
                    yield outcome

    def close(self) -> None:
        for worker in self.workers:
            worker.connection.close()  # an idle worker sees that and ends
        for worker in self.workers:
            if worker.chunk:
                worker.process.terminate()
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def _hand_out(self, chunks: Iterator[Chunk]) -> None:
        """Give every worker that is idle a chunk; workers are started as they are needed."""
        for number in range(self.size):
            if number < len(self.workers) and self.workers[number].chunk:
                continue
            chunk = self.returned.pop() if self.returned else next(chunks, None)
            if chunk is None:
                return
            if number >= len(self.workers):
                self.workers.append(self._start())
            worker = self.workers[number]
            worker.chunk = chunk
            with suppress(OSError):  # a worker that died meanwhile is found when its answer is read
                worker.connection.send(chunk)

    def _start(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, *self.given), daemon=True)
        try:
            process.start()
        except (BrokenPipeError, EOFError):  # the server ran the user's script again, and that failed
            raise _unguarded() from None
        theirs.close()
        return _Worker(process, ours)

    def _receive(self, worker: _Worker) -> Outcome | None:
        try:
            outcome = worker.connection.recv()
        except (EOFError, OSError):
            return self._replace(worker)
        if outcome == READY:
            worker.ready = True
            return None
        if isinstance(outcome, str):
            raise CF2Error(
                "Expected a worker process to load the model",
                got=outcome,
                do='Define the model in a module that can be imported, or use engine="local".',
            )
        assert isinstance(outcome, Outcome)
        assert worker.chunk is not None
        # Whoever takes the chunk over if this worker dies need not do this part again.
        done = worker.chunk.done | {e.key for e in outcome.found}
        worker.chunk = None if outcome.ended else worker.chunk._replace(done=done)
        return outcome

    def _replace(self, worker: _Worker) -> Outcome | None:
        """Take back the chunk of a dead worker, which has one try less."""
        worker.process.join(SECONDS_TO_DIE)
        code = worker.process.exitcode
        if not worker.ready and code == 1:
            raise _unguarded()  # Python could not even start it
        worker.connection.close()
        self.workers.remove(worker)
        chunk = worker.chunk
        assert chunk is not None
        deaths = self.deaths[chunk.number] = self.deaths.get(chunk.number, 0) + 1
        if deaths <= self.retries:
            self.returned.append(chunk)
            return None
        cause = f"with exit code {code}"
        if code is not None and code < 0:
            cause = f"killed by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -9 else "")
        return Outcome(chunk, reason=f"its worker process died {deaths} times, {cause}", ended=True)


def worker_context() -> Any:
    """Workers are forked from a server that has imported everything and nothing else, where there is one.

    That starts them at once and shares the memory of the libraries. The server is made with one thread.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise _unguarded()
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # it unblocks signals when it starts
    limits = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.pop(name, None) for name in limits}
    os.environ.update(dict.fromkeys(limits, "1"))
    # What is started here never sees Ctrl-C, not even before its first line; a signal meanwhile waits for us.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}
    return context


def _unguarded() -> CF2Error:
    return CF2Error(
        'Expected a script that starts worker processes to do so under `if __name__ == "__main__":`',
        got="a script that a worker cannot import without starting workers itself",
        do="Put the call under that line; the worker needs the rest of the script for your model.",
    )


def _serve(connection: Connection, message: bytes, buffers: Sequence[memoryview], directory: str) -> None:
    """A worker: explain the chunks that come until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other end's to handle
    torch.set_num_threads(1)
    sys.path.append(directory)  # the user's own module may lie in the current directory
    try:
        session = Session(deserialise(message, buffers))
    except Exception as error:
        with suppress(OSError):  # the other end may have gone meanwhile, and its data with it
            connection.send(reason_of(error))
        return
    with session, suppress(EOFError, OSError):
        connection.send(READY)
        while True:
            for outcome in attempt(session, connection.recv()):
                connection.send(outcome)
