"""One writer at a time for a run directory; who only reads is never kept waiting."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from cf2.core.whole_files import PARTIAL, ROOM
from cf2.errors import CF2Error, os_reason, require

LOCK = ".lock"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the one writer of the run at `path`, or say which process is.

    The system frees the lock of a process that has ended, however it did; the file stays, with the last owner's name.
    """
    file = path / LOCK
    require(file.is_file() or not file.exists(), f"Expected {file} to be the lock of a run", got="no regular file")
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise CF2Error(
            f"Expected to be the only one who writes to the run in {str(path)!r}",
            got=f"{_owner(file)}, which does so now",
            do="Wait until it has ended, or choose another directory.",
        ) from None
    except OSError as error:
        raise CF2Error(f"Expected to write {file}", got=os_reason(error), do=ROOM) from error
    try:
        with suppress(OSError):  # the name is for the message above alone
            file.write_text(f"{os.getpid()}\n{socket.gethostname()}\n", encoding="utf-8")
        _sweep(path)
        yield
    finally:
        lock.release()


def _owner(file: Path) -> str:
    try:
        pid, host = file.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return "another process"
    return f"process {pid}" + ("" if host == socket.gethostname() else f" on {host}")


def _sweep(path: Path) -> None:
    """Remove the half-written files of processes that have ended."""
    for partial in path.glob(f"{PARTIAL}*"):
        pid = partial.name.removeprefix(PARTIAL).partition("-")[0]
        if not (pid.isdecimal() and _alive(int(pid))):
            with suppress(OSError):  # a directory of that name is not ours
                partial.unlink()


def _alive(pid: int) -> bool:
    """Whether a process other than this one has that number; where one cannot ask, it may have."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return pid != os.getpid()
