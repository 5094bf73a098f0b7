"""What an engine is, what becomes of a chunk on it part by part, and the engine of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cf2.errors import CF2Error
from cf2.options import Key
from cf2.results.explanation import Explanation
from cf2.runs.session import Chunk, Request, Session


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


def _run(request: Request, chunks: Iterable[Chunk], resources: Resources) -> Iterator[Outcome]:
    with Session(request) as session:
        for chunk in chunks:
            yield from attempt(session, chunk)


LOCAL = Engine("local", _run)
