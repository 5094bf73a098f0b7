"""Arrays in one block of memory that local processes share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

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
