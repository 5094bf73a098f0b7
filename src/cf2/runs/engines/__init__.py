"""Where the work runs: this process, local processes, Ray; identical results.

A request and a list of keys become chunks of fixed size, and one call of `Session.parts` per chunk, whose parts come
back as they are made. Which worker does a chunk, and when, changes nothing: the boundaries are the same everywhere, and
what a session would find out from its first chunk is measured here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any, TypedDict, Unpack

from cf2.errors import require_number, unknown_name
from cf2.options import Key, Spec
from cf2.results.explanation import Explanation
from cf2.results.explanations import in_order
from cf2.runs.engines.cluster import RAY
from cf2.runs.engines.machine import LOCAL, PROCESSES, ChunksFailed, Engine, Outcome, Resources, cores
from cf2.runs.progress import Progress
from cf2.runs.session import KEYS_TO_MEASURE, Chunk, Request, Session
from cf2.runs.store import CHUNK_SIZE, Store

ENGINES = {engine.name: engine for engine in (LOCAL, PROCESSES, RAY)}


class Where(TypedDict, total=False):
    """Where chunks run, and who is told of every n keys that are done."""

    engine: str  # "local" if not given
    workers: int | None
    address: str | None  # of a Ray cluster
    retries: int  # of the chunk of a worker that dies; 2 if not given
    progress: Progress | None


def explain_many(
    request: Request,
    keys: Iterable[Key],
    *,
    chunk_size: int = CHUNK_SIZE,
    on_chunk: Callable[[int, list[Explanation]], Any] | None = None,
    **where: Unpack[Where],
) -> list[Explanation]:
    """Explain the keys on an engine, in their order.

    `keys` may be an iterator: it is read as the work proceeds. With `on_chunk(number, explanations)`, results are
    passed to it as they come, in any order, and the returned list is empty, so memory stays bounded. `progress(n)` is
    called after n more keys are done.
    """
    require_number("chunk_size", chunk_size, 1, integer=True)
    source = iter(keys)
    first = list(islice(source, KEYS_TO_MEASURE))
    if not first:
        return []
    whole: dict[int, list[Explanation]] = {}
    partial: dict[int, list[Explanation]] = {}
    take = on_chunk or whole.__setitem__

    def keep(outcome: Outcome) -> None:
        number = outcome.chunk.number
        partial.setdefault(number, []).extend(outcome.found)
        if outcome.ended:
            take(number, in_order(partial.pop(number), outcome.chunk.keys))

    rest = chain(request.targets.check(first), source)
    parts = iter(lambda: list(islice(rest, chunk_size)), [])
    chunks = (Chunk(number, request.targets.check(part)) for number, part in zip(count(), parts))
    explain_chunks(request, chunks, first, keep=keep, **where)
    return [e for number in sorted(whole) for e in whole[number]]


def explain_run(run: Store, spec: Spec | None = None, **where: Unpack[Where]) -> None:
    """Finish one job of a run (default: the first), as its only writer.

    What is done is on the disk within seconds. What the method needs beside the model is made once; the run keeps what
    was trained. If nothing at all can be done, what this start has made is taken back.
    """
    spec = run.jobs()[0] if spec is None else spec
    with run.started(spec):
        check(where.get("engine", "local"), where.get("workers"), where.get("retries", 2))
        pending = run.pending(spec)
        if (progress := where.get("progress")) is not None:
            progress(len(run.keys) - sum(len(chunk.keys) - len(chunk.done) for chunk in pending))
        if not pending:
            return
        request, first = run.request(spec), run.keys[:KEYS_TO_MEASURE]
        with run.writer(spec) as write:
            explain_chunks(request, pending, first, keep=lambda outcome: write(outcome.found), **where)


def explain_chunks(
    request: Request,
    chunks: Iterable[Chunk],
    first: Sequence[Key],
    *,
    keep: Callable[[Outcome], Any],
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
    retries: int = 2,
) -> None:
    """Explain numbered chunks; `first` are the keys by which the model is measured, the same for every resume.

    `keep` gets the parts of the chunks as they come, in any order, and the end of each chunk. A chunk that fails does
    not stop the others, unless more fail than succeed; the error at the end says all.
    """
    chosen = check(engine, workers, retries)
    with Session(request) as session:
        request = session.measure(first)
    failed: list[Outcome] = []
    finished, stopped = 0, False
    for outcome in chosen.run(request, chunks, Resources(workers, address, retries)):
        if outcome.reason:
            failed.append(outcome)
            stopped = len(failed) > finished + 2
            if stopped:
                break
            continue
        new = [e for e in outcome.found if e.key not in outcome.chunk.done]
        keep(replace(outcome, found=new))
        finished += outcome.ended
        if progress is not None and new:
            progress(sum(not e.rank for e in new))
    if failed:
        raise ChunksFailed(failed, finished, stopped)


def check(engine: str, workers: int | None = None, retries: int = 0) -> Engine:
    """The engine of that name; refused if it does not exist or is not installed, before anything is made for it."""
    if engine not in ENGINES:
        raise unknown_name("`engine`", engine, ENGINES)
    if workers is not None:
        require_number("workers", workers, 1, integer=True)
    require_number("retries", retries, 0, integer=True)
    ENGINES[engine].check()
    return ENGINES[engine]


def ready(
    engine: str, *, workers: int | None = None, address: str | None = None, size: int = 0
) -> AbstractContextManager[Any]:
    """A context in which calls with the engine "ray" share one cluster.

    `size` is the room for the largest graph in bytes. The other engines have nothing to keep.
    """
    return check(engine).ready(address, workers, size)


__all__ = ["ENGINES", "ChunksFailed", "check", "cores", "explain_chunks", "explain_many", "explain_run", "ready"]
