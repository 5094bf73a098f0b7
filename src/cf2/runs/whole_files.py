"""Files that are whole or not there: written aside, synchronised, then renamed. Shards carry a digest."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error
from cf2.results.explanations import Explanations

SHARDS, PARTIAL = "shards", "partial-"

log = logging.getLogger("cf2")


def write_shard(path: Path, stem: str, found: Explanations) -> Path:
    """Keep explanations in the run at `path`; the shard's name is `stem` and a digest of its bytes."""
    partial = path / f"{PARTIAL}{os.getpid()}-{stem}.parquet"
    with writing(partial):
        found.save(partial)
        content = partial.read_bytes()
        final = path / SHARDS / f"{stem}.{digest(content)}.parquet"
        _publish(partial, final)
    return final


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file at once."""
    text = json.dumps(value) + "\n"
    write_with(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file at once, and make the directories above it."""
    write_with(path, lambda partial: partial.write_bytes(content))


def write_with(path: Path, save: Callable[[Path], Any]) -> None:
    """Replace a file at once by what `save` writes to a path."""
    partial = path.parent / f"{PARTIAL}{os.getpid()}-{path.name}"
    with writing(partial, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        save(partial)
        _publish(partial, path)


def _publish(partial: Path, final: Path) -> None:
    """Bytes to the disk first, then the name, then the directory: a name never stands for missing bytes."""
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(partial, final)
    with suppress(OSError, AttributeError):  # not every system can synchronise a directory
        directory = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextmanager
def writing(path: Path, final: Path | None = None) -> Iterator[None]:
    """A failure to write `path`, which is to become `final`, as one clear error with nothing left behind."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise CF2Error(
            f"Expected to write {final or path}",
            got=error.strerror or error,
            do="Make room or choose another place; what is finished is kept, and --resume goes on with it.",
        ) from error


def read_json(path: Path) -> Any:
    """Read a JSON file of a run, or say that it is broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CF2Error(f"Expected {path} to hold the description of a run", got=error) from error


def digest(content: bytes) -> str:
    """The first 16 hexadecimal digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def intact(shard: Path) -> bool:
    """Whether a shard holds the bytes that its name promises; if not, the log names it."""
    try:
        whole = digest(shard.read_bytes()) == shard.name.split(".")[-2]
    except OSError as error:
        log.warning("Shard %s cannot be read (%s); its chunk counts as not done.", shard, error.strerror)
        return False
    if not whole:
        log.warning("Shard %s is truncated or corrupted; its chunk counts as not done.", shard)
    return whole
