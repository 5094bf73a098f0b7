"""This process does the work itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cf2.engines.outcome import Chunk, Outcome, reason_of
from cf2.work import Session, Work


def run(work: Work, chunks: Iterable[Chunk]) -> Iterator[Outcome]:
    """Explain one chunk after the other."""
    with Session(work) as session:
        for chunk in chunks:
            yield attempt(session, chunk)


def attempt(session: Session, chunk: Chunk) -> Outcome:
    """The explanations of a chunk, or what went wrong. Trying again would go wrong in the same way."""
    try:
        return Outcome(chunk, session.explain(chunk[1]))
    except Exception as error:
        return Outcome(chunk, reason=reason_of(error))
