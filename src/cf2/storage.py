"""Files that are whole or not there: written aside, synchronised, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error, os_reason, require, require_file

PARTIAL = "partial-"  # how the name of a file begins that is being written
MOST_JSON = 1 << 30  # bytes of a JSON file that is read

ROOM = "Make room, or choose another place."


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file at once."""
    write_bytes(path, (json.dumps(value) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file at once, and make the directories above it."""
    write_with(path, lambda partial: partial.write_bytes(content))


def write_with(path: Path, save: Callable[[Path], Any], *, make: bool = True) -> None:
    """Replace a file at once by what `save` writes to a path; `make` the directories above it if they are not there."""
    write_together({path: save}, make=make)


def write_together(saves: dict[Path, Callable[[Path], Any]], *, make: bool = True) -> None:
    """Replace several files: each is complete on the disk before the first of them gets its name."""
    partials = {path: partial_path(path) for path in saves}
    try:
        for path, save in saves.items():
            with writing(path):
                if make:
                    path.parent.mkdir(parents=True, exist_ok=True)
                save(partials[path])
                synchronise(partials[path])
        for path, partial in partials.items():
            with writing(path):
                publish(partial, path)
    finally:
        for partial in partials.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Refuse a place that a file cannot be written to, before the work whose result goes there."""
    above = next(place for place in path.absolute().parents if place.exists())
    got = f"{str(above)!r}, which is {'not writable' if above.is_dir() else 'a file'}"
    require(above.is_dir() and os.access(above, os.W_OK), f"Expected a directory to write {path} in", got=got, do=ROOM)
    require(not path.is_dir(), "Expected the path of a file to write", got=f"{str(path)!r}, a directory")


def partial_path(path: Path) -> Path:
    """Where a file is written before it gets its name; the process that does so can be read from it."""
    return path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")


def synchronise(partial: Path) -> None:
    """Have the bytes of a file on the disk."""
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())


def publish(partial: Path, final: Path) -> None:
    """Give a file whose bytes are on the disk its name, and have the name on the disk, too."""
    os.replace(partial, final)
    with suppress(OSError, AttributeError):  # not every system can synchronise a directory
        directory = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextmanager
def writing(path: Path, do: str = ROOM) -> Iterator[None]:
    """A failure to write `path` as one clear error."""
    try:
        yield
    except OSError as error:
        raise CF2Error(f"Expected to write {path}", got=os_reason(error), do=do) from error


def read_json(path: Path, what: str = "the description of a run", *, do: str = "") -> Any:
    """Read a JSON file, or say that it is broken; a pipe or a device is not opened."""
    require_file(path, f"{path} to hold {what}", most=MOST_JSON, do=do)
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CF2Error(f"Expected {path} to hold {what}", got=error, do=do) from error


def digest(content: bytes) -> str:
    """The first 16 hexadecimal digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def digest_json(value: Any) -> str:
    """The digest of a value that JSON can hold, whatever the order of its names."""
    return digest(json.dumps(value, sort_keys=True).encode())
