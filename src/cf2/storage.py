"""Files that are whole or not there (written aside, synchronised, then renamed), and fingerprints of their contents."""

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
MAX_JSON_BYTES = 1 << 30

MAKE_ROOM = "Free disk space, or choose another directory."


def fingerprint(*parts: Any, digits: int = 64) -> str:
    """The first `digits` of the SHA-256 of parts, one after the other.

    A part is text, bytes, the path of a file, a tensor or an array (its bytes), or a value that JSON can hold, whatever
    the order of its names. Shapes and types of arrays are not included: say them as text before.
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
        else:
            digest.update(_bytes(part))
    return digest.hexdigest()[:digits]


def _bytes(part: Any) -> Any:
    if isinstance(part, bytes):
        return part
    if hasattr(part, "detach"):
        import torch

        dense = part.detach().cpu() if part.layout == torch.strided else part.detach().cpu().to_dense()
        return dense.contiguous().reshape(-1).view(torch.uint8).numpy().data if dense.numel() else b""
    if hasattr(part, "tobytes"):
        return part.tobytes()
    return (part if isinstance(part, str) else json.dumps(part, sort_keys=True)).encode()


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


def partial_path(path: Path) -> Path:
    """Where a file is written before it gets its name; the process that does so can be read from it."""
    return path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")


def synchronise(path: Path) -> None:
    """Have the bytes of a file, or the names in a directory, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish(partial: Path, final: Path) -> None:
    """Give a file whose bytes are on the disk its name, and have the name on the disk, too."""
    os.replace(partial, final)
    with suppress(OSError):  # not every system can synchronise a directory
        synchronise(final.parent)


@contextmanager
def writing(path: Path, do: str = MAKE_ROOM) -> Iterator[None]:
    """A failure to write `path` as one clear error."""
    try:
        yield
    except OSError as error:
        raise CF2Error(f"Expected to write {path}", got=os_reason(error), do=do) from error


def check_place(path: Path) -> None:
    """Refuse a place that a file cannot be written to, before the work whose result goes there."""
    above = next(place for place in path.absolute().parents if place.exists())
    got = f"{str(above)!r}, which is {'not writable' if above.is_dir() else 'a file'}"
    require(
        above.is_dir() and os.access(above, os.W_OK), f"Expected a directory to write {path} in", got=got, do=MAKE_ROOM
    )
    require(not path.is_dir(), "Expected the path of a file to write", got=f"{str(path)!r}, a directory")


def read_json(path: Path, what: str = "the description of a run", *, do: str = "") -> Any:
    """Read a JSON file, or say that it is broken; a pipe or a device is not opened."""
    require_file(path, f"{path} to hold {what}", most=MAX_JSON_BYTES, do=do)
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CF2Error(f"Expected {path} to hold {what}", got=error, do=do) from error
