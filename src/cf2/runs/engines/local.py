"""What becomes of a chunk, part by part, and what a run of many chunks says when some of them failed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cf2.errors import CF2Error
from cf2.options import Key
from cf2.results.explanation import Explanation
from cf2.runs.session import Chunk, Request, Session

# -- outcome ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """Some explanations of a chunk, or its end, with the reason where it ended too early."""

    chunk: Chunk
    found: list[Explanation] = field(default_factory=list)
    reason: str = ""
    ended: bool = False


def reason_of(error: Exception) -> str:
    """An error in one line; ours speak for themselves."""
    return str(error) if isinstance(error, CF2Error) else f"{type(error).__name__}: {error}"


class ChunksFailed(CF2Error):
    """Some chunks could not be explained; the others were."""

    def __init__(self, failed: Sequence[Outcome], finished: int, stopped: bool) -> None:
        self.failed = list(failed)
        parts = [f"chunk {o.chunk.number} ({_keys(o.chunk.keys)}): {o.reason}" for o in failed[:5]]
        if len(failed) > 5:
            parts.append(f"and {len(failed) - 5} more chunks")
        keys = sum(len(o.chunk.keys) for o in failed)
        super().__init__(
            "Expected to explain every key",
            got=f"{len(failed)} failed chunks of {keys} keys beside {finished} finished ones"
            + (", and stopped there" if stopped else "")
            + ":\n  "
            + "\n  ".join(parts),
        )

    def __reduce__(self) -> tuple[type[CF2Error], tuple[str]]:
        return CF2Error, (str(self),)


def _keys(keys: Sequence[Key]) -> str:
    if len(keys) == 1:
        return f"key {keys[0]}"
    return "keys " + ", ".join(map(str, keys[:4])) + (f", … {keys[-1]}" if len(keys) > 4 else "")


# -- local -----------------------------------------------------------------------------------------------


def run(request: Request, chunks: Iterable[Chunk]) -> Iterator[Outcome]:
    """Explain one chunk after the other."""
    with Session(request) as session:
        for chunk in chunks:
            yield from attempt(session, chunk)


def attempt(session: Session, chunk: Chunk) -> Iterator[Outcome]:
    """The parts of a chunk and its end, or what went wrong. Trying again would go wrong in the same way."""
    try:
        for found in session.parts(chunk):
            yield Outcome(chunk, found)
    except Exception as error:
        yield Outcome(chunk, reason=reason_of(error), ended=True)
    else:
        yield Outcome(chunk, ended=True)


def cores() -> int:
    """How many cores this process may use; not every system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
