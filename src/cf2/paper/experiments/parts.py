"""The parts of a reproduction, filled side by side by worker processes.

A part is what shares base models: all columns of a data set under one seed, or a table of one data set. It is filled
into the same directories as without workers; who puts the tables together finds it done, and does himself what a part
left undone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from cf2.paper.experiments import pictures
from cf2.paper.experiments import published as paper
from cf2.paper.experiments.attribution import SIZES, attribution_rows
from cf2.paper.experiments.published import Column
from cf2.paper.experiments.reproduction import BaseSeed, Reproduction
from cf2.paper.experiments.robustness import DATASETS, robustness_rows
from cf2.runs.engines.processes import worker_context

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """What one worker does at a time; `kind` is a table, or "columns"."""

    kind: str
    dataset: str
    methods: tuple[str, ...] | None
    columns: tuple[Column, ...] = ()
    seed: BaseSeed = None
    figures: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.kind} of {self.dataset}{seed}"

    def fill(self, cells: Reproduction) -> None:
        """Do it; everything goes to the disk."""
        if self.kind == "robustness":
            robustness_rows(cells, [self.dataset], self.methods)
        elif self.kind == "attribution":
            attribution_rows(cells, [self.dataset], self.methods)
        elif cells.source(self.dataset, self.seed) is not None:  # it trains the base model
            for column in self.columns:
                for method in self.methods or ():
                    cells.explanations(column, method, self.seed)
            if "alpha" in self.figures:
                mine = [column for column in self.columns if column.name in paper.ALPHA_COLUMNS]
                pictures.alpha_rows(cells, mine, [self.seed])


def parts_of(
    tables: Sequence[str],
    figures: Sequence[str],
    columns: Sequence[Column],
    names: Sequence[str] | None,
    methods: Sequence[str],
    bases: Sequence[BaseSeed],
    asked: bool,
) -> list[Part]:
    """The parts that fill the chosen tables and figures, those that take longest first."""
    parts = []
    own = tuple(methods) if asked else None
    for table, known in (("robustness", DATASETS), ("attribution", tuple(SIZES))):
        if table in tables:
            parts += [Part(table, name, own) for name in known if names is None or name in names]
    causal = bool({"causal", "reached"} & set(tables))
    truth = bool({"truth", "correlation"} & set(tables))
    for seed in bases:
        drawn = tuple(figures) if seed == bases[0] else ()
        for name in dict.fromkeys(column.dataset for column in columns):
            mine = tuple(column for column in columns if column.dataset == name)
            filled = tuple(column for column in mine if causal or (truth and column.truth))
            wanted = "accuracy" in tables or any(column.name in paper.ALPHA_COLUMNS for column in mine if drawn)
            if filled or wanted:
                parts.append(Part("columns", name, tuple(methods) if filled else (), filled or mine, seed, drawn))
    return parts


def fill(
    parts: Sequence[Part],
    *,
    out: Path,
    root: str | Path | None,
    instances: int | None,
    workers: int,
    tell: Callable[[str], Any],
) -> float:
    """Fill parts with so many processes of one thread each; the CPU seconds that they took together."""
    context = worker_context()
    waiting, running, busy = deque(parts), dict[Any, tuple[Part, Any, Connection]](), 0.0
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                part = waiting.popleft()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(theirs, part, out, root, instances), daemon=True)
                process.start()
                theirs.close()
                running[process.sentinel] = part, process, ours
            for sentinel in wait(list(running)):
                part, process, ours = running.pop(sentinel)
                process.join()
                reason: str | None = f"the exit code {process.exitcode}"
                with suppress(EOFError, OSError):
                    seconds, reason = ours.recv()
                    busy += seconds
                if reason is not None:
                    log.warning("The %s stopped with %s; what is missing is done at the end.", part.label, reason)
                tell(part.label)
    finally:
        for _, process, _ in running.values():
            process.terminate()
            process.join()
    return busy


def _work(connection: Connection, part: Part, out: Path, root: str | Path | None, instances: int | None) -> None:
    import torch

    torch.set_num_threads(1)
    reason = None
    try:
        part.fill(Reproduction(out, root, instances=instances))
    except Exception as error:  # whoever started this does it again, and then sees the error itself
        reason = f"{type(error).__name__}: {error}"
    with suppress(OSError):
        connection.send((time.process_time(), reason))
