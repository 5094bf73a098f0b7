"""Where the work runs: this process, local processes, Ray; identical results.

A work and a list of keys become chunks of fixed size, and one call of `Session.explain` a chunk. Which worker
does a chunk, and when, changes nothing: the boundaries are the same everywhere, and what a session would
decide by looking at its first chunk is decided here, once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import Any

from cf2.engines import cluster, local, processes
from cf2.engines.outcome import Chunk, ChunksFailed, Outcome
from cf2.errors import require_number, unknown_name
from cf2.explanation import Explanation
from cf2.instances import Graph, check_nodes
from cf2.methods import get
from cf2.methods.trained import Trained
from cf2.runs import CHUNK_SIZE, Run
from cf2.work import SETTLE, Session, Work

ENGINES = ("local", "processes", "ray")

OnChunk = Callable[[int, list[Explanation]], Any]
Progress = Callable[[int], None]


def explain_many(
    work: Work,
    keys: Iterable[int],
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
    first = list(islice(source, SETTLE))
    if not first:
        return []
    limit = work.source.num_nodes if isinstance(work.source, Graph) else len(work.source)
    chunks = _chunks(chain(check_nodes(first, limit), source), chunk_size, limit)
    options = {
        "engine": engine,
        "workers": workers,
        "address": address,
        "progress": progress,
        "retries": retries,
    }
    if on_chunk is not None:
        explain_chunks(work, chunks, first, on_chunk=on_chunk, **options)  # type: ignore[arg-type]
        return []
    found: dict[int, list[Explanation]] = {}
    explain_chunks(work, chunks, first, on_chunk=found.__setitem__, **options)  # type: ignore[arg-type]
    return [e for number in sorted(found) for e in found[number]]


def explain_run(
    run: Run,
    *,
    method: str | None = None,
    seed: int | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
    retries: int = 2,
    fit: Callable[[], Trained] | None = None,
) -> None:
    """Do what is still to do of one job of a run; every chunk is on the disk as soon as it is done.

    A method that is trained first is trained by `fit`, once: the run keeps what it returns.
    """
    job = run.job(method, seed)
    pending = run.pending(job.method, job.seed)
    keys = run.keys
    if progress is not None:
        progress(len(keys) - sum(len(part) for _, part in pending))
    if not pending:
        return
    trained = run.trained(job)
    if trained is None and fit is not None and get(job.method).fit is not None:
        trained = fit()
        run.keep_trained(job, trained)
    work = run.work(job, trained)
    explain_chunks(
        work,
        pending,
        keys[:SETTLE],
        engine=engine,
        workers=workers,
        address=address,
        on_chunk=run.write,
        progress=progress,
        retries=retries,
    )


def explain_chunks(
    work: Work,
    chunks: Iterable[Chunk],
    first: Sequence[int],
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    on_chunk: OnChunk,
    progress: Progress | None = None,
    retries: int = 2,
) -> None:
    """Explain numbered chunks; `first` are the keys by which the work is settled, the same for every resume.

    A chunk that fails does not stop the others, unless more fail than succeed; the error at the end says all.
    """
    if engine not in ENGINES:
        raise unknown_name("`engine`", engine, ENGINES)
    if workers is not None:
        require_number("workers", workers, 1, integer=True)
    require_number("retries", retries, 0, integer=True)
    with Session(work) as session:
        work = session.settle(first)
    failed: list[Outcome] = []
    finished, stopped = 0, False
    for outcome in _outcomes(work, chunks, engine, workers, retries, address):
        if outcome.found is None:
            failed.append(outcome)
            stopped = len(failed) > finished + 2
            if stopped:
                break
            continue
        on_chunk(outcome.chunk[0], outcome.found)
        finished += 1
        if progress is not None:
            progress(len(outcome.chunk[1]))
    if failed:
        raise ChunksFailed(failed, finished, stopped)


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
    work: Work, chunks: Iterable[Chunk], engine: str, workers: int | None, retries: int, address: str | None
) -> Iterator[Outcome]:
    if engine == "ray":
        return cluster.run(work, chunks, workers=workers, retries=retries, address=address)
    if engine == "processes":
        return processes.run(work, chunks, workers=workers or cores(), retries=retries)
    return local.run(work, chunks)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(keys: Iterator[int], size: int, limit: int) -> Iterator[Chunk]:
    number = 0
    while part := list(islice(keys, size)):
        yield number, check_nodes(part, limit)
        number += 1


__all__ = ["ENGINES", "ChunksFailed", "cores", "explain_chunks", "explain_many", "explain_run", "ready"]
