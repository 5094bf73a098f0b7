"""Where the work runs: this process, local processes, Ray; identical results.

A request and a list of keys become chunks of fixed size, and one call of `Session.parts` per chunk, whose parts come
back as they are made. Which worker does a chunk, and when, changes nothing: the boundaries are the same everywhere, and
what a session would find out from its first chunk is measured here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from cf2.errors import require_number, unknown_name
from cf2.options import Key, Spec
from cf2.results.explanation import Explanation
from cf2.runs.engines import cluster, local, processes
from cf2.runs.engines.local import ChunksFailed, Outcome, cores
from cf2.runs.session import FIRST, Chunk, Progress, Request, Session
from cf2.runs.store import CHUNK_SIZE, Store

ENGINES = ("local", "processes", "ray")

OnChunk = Callable[[int, list[Explanation]], Any]


def explain_many(
    request: Request,
    keys: Iterable[Key],
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    chunk_size: int = CHUNK_SIZE,
    on_chunk: OnChunk | None = None,
    progress: Progress | None = None,
    retries: int = 2,
) -> list[Explanation]:
    """Explain the keys on an engine, in their order.

    `keys` may be an iterator: it is read as the work proceeds. With `on_chunk(number, explanations)`, results
    go there as they come, in any order, and the list that is returned is empty, so that memory stays bounded.
    `progress(n)` is told of every n keys that are done.
    """
    require_number("chunk_size", chunk_size, 1, integer=True)
    source = iter(keys)
    first = list(islice(source, FIRST))
    if not first:
        return []
    found: dict[int, list[Explanation]] = {}
    made: dict[int, dict[Key, list[Explanation]]] = {}
    take = on_chunk or found.__setitem__

    def keep(outcome: Outcome) -> None:
        number, keys, _ = outcome.chunk
        by_key = made.setdefault(number, {})
        for e in outcome.found:
            by_key.setdefault(e.key, []).append(e)
        if outcome.ended:
            del made[number]
            take(number, [e for key in keys for e in by_key[key]])

    explain_chunks(
        request,
        _chunks(chain(request.targets.check(first), source), chunk_size, request),
        first,
        engine=engine,
        workers=workers,
        address=address,
        keep=keep,
        progress=progress,
        retries=retries,
    )
    return [e for number in sorted(found) for e in found[number]]


def explain_run(
    run: Store,
    spec: Spec | None = None,
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
    retries: int = 2,
) -> None:
    """Do what is still to do of one job of a run (the first, if none is given), as its only writer.

    What is done is on the disk within seconds. What the method needs beside the model is made once; the run keeps what
    was trained. If nothing at all can be done, what this start has made is taken back.
    """
    spec = run.jobs()[0] if spec is None else spec
    with run.started(spec):
        check(engine, workers, retries)
        pending = run.pending(spec)
        if progress is not None:
            progress(len(run.keys) - sum(len(chunk.keys) - len(chunk.done) for chunk in pending))
        if not pending:
            return
        request = run.request(spec)
        with run.writer(spec) as writer:
            explain_chunks(
                request,
                pending,
                run.keys[:FIRST],
                engine=engine,
                workers=workers,
                address=address,
                keep=lambda outcome: writer.add(outcome.found),
                progress=progress,
                retries=retries,
            )


def explain_chunks(
    request: Request,
    chunks: Iterable[Chunk],
    first: Sequence[Key],
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    keep: Callable[[Outcome], Any],
    progress: Progress | None = None,
    retries: int = 2,
) -> None:
    """Explain numbered chunks; `first` are the keys by which the model is measured, the same for every resume.

    `keep` gets the parts of the chunks as they come, in any order, and the end of each chunk. A chunk that fails does
    not stop the others, unless more fail than succeed; the error at the end says all.
    """
    check(engine, workers, retries)
    with Session(request) as session:
        request = session.measure(first)
    failed: list[Outcome] = []
    finished, stopped = 0, False
    for outcome in _outcomes(request, chunks, engine, workers, retries, address):
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


def check(engine: str, workers: int | None = None, retries: int = 0) -> None:
    """Refuse an engine that does not exist or is not installed, before anything is made for it."""
    if engine not in ENGINES:
        raise unknown_name("`engine`", engine, ENGINES)
    if workers is not None:
        require_number("workers", workers, 1, integer=True)
    require_number("retries", retries, 0, integer=True)
    if engine == "ray":
        cluster.imported()


def ready(
    engine: str, *, workers: int | None = None, address: str | None = None, size: int = 0
) -> AbstractContextManager[Any]:
    """Within this, calls with engine "ray" share one cluster instead of starting one each.

    `size` is the room for the largest graph in bytes. The other engines have nothing to keep.
    """
    if engine not in ENGINES:
        raise unknown_name("`engine`", engine, ENGINES)
    return cluster.connected(address, workers, size) if engine == "ray" else nullcontext()


def _outcomes(
    request: Request, chunks: Iterable[Chunk], engine: str, workers: int | None, retries: int, address: str | None
) -> Iterator[Outcome]:
    if engine == "ray":
        return cluster.run(request, chunks, workers=workers, retries=retries, address=address)
    if engine == "processes":
        return processes.run(request, chunks, workers=workers or cores(), retries=retries)
    return local.run(request, chunks)


def _chunks(keys: Iterator[Key], size: int, request: Request) -> Iterator[Chunk]:
    number = 0
    while part := list(islice(keys, size)):
        yield Chunk(number, request.targets.check(part))
        number += 1


__all__ = ["ENGINES", "ChunksFailed", "check", "cores", "explain_chunks", "explain_many", "explain_run", "ready"]
