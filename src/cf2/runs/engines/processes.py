"""Arrays in one block of memory that local processes share."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from cf2.errors import CF2Error
from cf2.runs.engines.local import Outcome, reason_of
from cf2.runs.session import Chunk, Request

# -- shared ----------------------------------------------------------------------------------------------


ALIGN = 64


@dataclass(frozen=True)
class Layout:
    """Where the arrays lie: the name of the block, and the start, dtype and shape of each."""

    name: str
    is_file: bool
    arrays: tuple[tuple[int, str, tuple[int, ...]], ...]

    def view(self, buffer: Any) -> list[np.ndarray]:
        """The arrays as views of the block."""
        found = []
        for start, dtype, shape in self.arrays:
            count = int(np.prod(shape, dtype=np.int64))
            found.append(np.frombuffer(buffer, dtype=dtype, count=count, offset=start).reshape(shape))
        return found


class Block:
    """Arrays copied once to where every process of this machine can see them; gone on exit.

    Shared memory is freed by Python's resource tracker even if this process is killed. Where there is too
    little of it (containers often have 64 MiB), a temporary file does the same through the page cache.
    """

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        places, size = [], 0
        for array in arrays:
            places.append((size, array.dtype.str, array.shape))
            size += -(-array.nbytes // ALIGN) * ALIGN
        size = max(size, ALIGN)
        self._memory: SharedMemory | None = None
        self._file: Path | None = None
        if _room_for(size):
            self._memory = SharedMemory(create=True, size=size)
            buffer: Any = self._memory.buf
            name = self._memory.name
        else:
            handle, name = tempfile.mkstemp(prefix="cf2-")
            os.close(handle)
            self._file = Path(name)
            buffer = np.memmap(name, dtype=np.uint8, mode="w+", shape=(size,))
        self.layout = Layout(name, self._file is not None, tuple(places))
        self.size = size
        for target, array in zip(self.layout.view(buffer), arrays):
            target[...] = array
        del buffer

    def __enter__(self) -> Layout:
        return self.layout

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._memory is not None:
            with suppress(BufferError):
                self._memory.close()
            self._memory.unlink()
        if self._file is not None:
            self._file.unlink(missing_ok=True)


_ATTACHED: list[SharedMemory] = []  # a worker keeps its block as long as it lives


def attach(layout: Layout) -> list[np.ndarray]:
    """The arrays of a block that another process made."""
    if layout.is_file:
        return layout.view(np.memmap(layout.name, dtype=np.uint8, mode="r"))
    memory = SharedMemory(layout.name)
    _ATTACHED.append(memory)
    return layout.view(memory.buf)


def _room_for(size: int) -> bool:
    try:
        status = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return True  # another system, where shared memory is not a file system with a size
    return status.f_bavail * status.f_frsize > size + (16 << 20)


# -- transfer --------------------------------------------------------------------------------------------


BIG = 1 << 16  # bytes; below that, looking an array up costs as much as sending it


def serialise(request: Request) -> tuple[bytes, list[np.ndarray]]:
    """The request as a message, and the arrays that the message refers to by number.

    Nothing is moved or changed: torch's own sharing would swap the memory under tensors that the user holds.
    """
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    try:
        pickler.dump(request)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CF2Error(
            "Expected a model that can be sent to another process",
            got=error,
            do='Define its class at the top level of a module, or use engine="local".',
        ) from error
    return stream.getvalue(), pickler.arrays


def deserialise(message: bytes, arrays: Sequence[np.ndarray]) -> Request:
    """The request again, on top of the given arrays."""
    request = _Unpickler(io.BytesIO(message), arrays).load()
    assert isinstance(request, Request)
    return request


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)
        self.arrays: list[np.ndarray] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # ids are only unique among the living

    def persistent_id(self, item: Any) -> tuple[str, int, bool] | None:
        kind = {torch.Tensor: "tensor", torch.nn.Parameter: "parameter", np.ndarray: "array"}.get(type(item))
        if kind is None or item.nbytes < BIG:
            return None
        if kind == "array":
            return None if item.dtype.hasobject else (kind, self._number(item, item), False)
        plain = item.layout == torch.strided and item.device.type == "cpu" and item.dtype != torch.bfloat16
        if not plain or (item.requires_grad and not item.is_leaf):
            return None
        return kind, self._number(item, item.detach().numpy()), item.requires_grad

    def _number(self, item: Any, array: np.ndarray) -> int:
        if id(item) not in self._numbers:
            self._numbers[id(item)] = len(self.arrays)
            self.arrays.append(np.ascontiguousarray(array))
            self._alive.append(item)
        return self._numbers[id(item)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, arrays: Sequence[np.ndarray]) -> None:
        super().__init__(stream)
        self.arrays = arrays

    def persistent_load(self, known: Any) -> Any:
        kind, number, gradient = known
        array = self.arrays[number]
        if kind == "array":
            return array
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the array may be read-only, and nothing writes to it
            tensor = torch.from_numpy(array)
        return torch.nn.Parameter(tensor, gradient) if kind == "parameter" else tensor.requires_grad_(gradient)


# -- processes -------------------------------------------------------------------------------------------


AHEAD = 2  # chunks at a worker: the one it does, and the next, so that it never waits for this process
PATIENCE = 60  # seconds for a worker that has hung up to end, so that one can say what it died of


def run(request: Request, chunks: Iterable[Chunk], *, workers: int, retries: int) -> Iterator[Outcome]:
    """Explain chunks on `workers` processes; the chunk of a dead worker goes to another, `retries` times."""
    message, arrays = serialise(request)
    with Block(arrays) as layout:
        pool = _Pool(message, layout, workers, retries)
        try:
            yield from pool.map(iter(chunks))
        finally:
            pool.close()


@dataclass(eq=False)
class _Worker:
    process: Any
    connection: Connection
    chunks: deque[Chunk] = field(default_factory=deque)  # the first is being done
    ready: bool = False  # it has loaded the model


class _Pool:
    def __init__(self, message: bytes, layout: Layout, size: int, retries: int) -> None:
        self.message, self.layout, self.size, self.retries = message, layout, size, retries
        self.context = worker_context()
        self.workers: list[_Worker] = []
        self.again: deque[Chunk] = deque()
        self.deaths: dict[int, int] = {}

    def map(self, chunks: Iterator[Chunk]) -> Iterator[Outcome]:
        while True:
            self._hand_out(chunks)
            busy = {worker.connection: worker for worker in self.workers if worker.chunks}
            if not busy:
                return
            for connection in wait(list(busy)):
                outcome = self._receive(busy[connection])  # type: ignore[index]
                if outcome is not None:
                    yield outcome

    def close(self) -> None:
        for worker in self.workers:
            worker.connection.close()  # an idle worker sees that and ends
        for worker in self.workers:
            if worker.chunks:
                worker.process.terminate()
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def _hand_out(self, chunks: Iterator[Chunk]) -> None:
        """Fill the workers up evenly: everyone gets a first chunk before anyone gets a second."""
        for depth in range(AHEAD):
            for place in range(self.size):
                if place < len(self.workers) and len(self.workers[place].chunks) > depth:
                    continue
                chunk = self.again.popleft() if self.again else next(chunks, None)
                if chunk is None:
                    return
                if place >= len(self.workers):
                    self.workers.append(self._start())
                worker = self.workers[place]
                worker.chunks.append(chunk)
                with suppress(OSError):  # a worker that died meanwhile is found when its answer is read
                    worker.connection.send(chunk)

    def _start(self) -> _Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(
            target=_serve, args=(theirs, self.message, self.layout, os.getcwd()), daemon=True
        )
        try:
            process.start()
        except (BrokenPipeError, EOFError):  # the server ran the user's script again, and that failed
            raise _unguarded() from None
        theirs.close()
        return _Worker(process, ours)

    def _receive(self, worker: _Worker) -> Outcome | None:
        try:
            kind, value = worker.connection.recv()
        except (EOFError, OSError):
            return self._died(worker)
        if kind == "broken":
            raise CF2Error(
                "Expected a worker process to load the model",
                got=value,
                do='Define the model in a module that can be imported, or use engine="local".',
            )
        if kind == "ready":
            worker.ready = True
            return None
        chunk, (found, reason, ended) = worker.chunks[0], value
        if ended:
            worker.chunks.popleft()
        else:  # whoever takes the chunk over if this worker dies need not do this part again
            worker.chunks[0] = chunk._replace(done=chunk.done | {e.key for e in found})
        return Outcome(chunk, found, reason, ended)

    def _died(self, worker: _Worker) -> Outcome | None:
        """Replace a dead worker; its first chunk has one try less, the others did not cause it."""
        worker.process.join(PATIENCE)
        if not worker.ready and worker.process.exitcode == 1:
            raise _unguarded()  # Python could not even start it
        worker.connection.close()
        self.workers.remove(worker)
        first = worker.chunks.popleft()
        self.again.extendleft(reversed(worker.chunks))
        count = self.deaths[first.number] = self.deaths.get(first.number, 0) + 1
        if count <= self.retries:
            self.again.appendleft(first)
            return None
        why = f"its worker process died {count} times, {_death(worker.process.exitcode)}"
        return Outcome(first, reason=why, ended=True)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"with exit code {code}"


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
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(dict.fromkeys(limits, "1"))
    # What is started here never sees Ctrl-C, not even before its first line; a signal meanwhile waits for us.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return context


def _unguarded() -> CF2Error:
    return CF2Error(
        'Expected a script that starts worker processes to do so under `if __name__ == "__main__":`',
        got="a script that a worker cannot import without starting workers itself",
        do="Put the call under that line; the worker needs the rest of the script for your model.",
    )


def _serve(connection: Connection, message: bytes, layout: Layout, directory: str) -> None:
    """A worker: explain the chunks that come until the other end closes."""
    import torch

    from cf2.runs.engines.local import attempt
    from cf2.runs.session import Session

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other end's to handle
    torch.set_num_threads(1)
    sys.path.append(directory)  # the user's own module may lie in the current directory
    try:
        session = Session(deserialise(message, attach(layout)))
    except Exception as error:
        with suppress(OSError):  # the other end may have gone meanwhile, and its data with it
            connection.send(("broken", reason_of(error)))
        return
    with session, suppress(EOFError, OSError):
        connection.send(("ready", None))
        while True:
            for outcome in attempt(session, connection.recv()):
                connection.send(("outcome", (outcome.found, outcome.reason, outcome.ended)))
