"""This process does the work itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from cf2.runs.engines.outcome import Outcome, reason_of
from cf2.runs.session import Chunk, Request, Session


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
