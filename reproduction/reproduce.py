"""The whole paper in one call: runs that can be killed and resumed, then tables and figures on disk."""

from __future__ import annotations

import logging
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error, require, require_number, unknown_name
from cf2.methods import registry
from cf2.options import as_json
from cf2.runs import engines
from cf2.runs.engines.machine import worker_context
from cf2.runs.store import versions
from cf2.storage import PARTIAL, write_json, writing
from reproduction import pictures
from reproduction import published as paper
from reproduction import rows as rows_of
from reproduction.attribution import SIZES, attribution_rows
from reproduction.cells import BaseSeed, Progress, Reproduction
from reproduction.published import COLUMNS, FIGURES, TABLES, Column
from reproduction.robustness import DATASETS, robustness_rows
from reproduction.tables import write_files
from reproduction.training import RECIPES

log = logging.getLogger(__name__)

LARGEST = 64 << 20  # bytes of the largest data set, CiteSeer with its features

SEEDS = 5  # base models of each data set
INSTANCES = 20  # explained under each base model: with five of them, two cores are done within 40 minutes
OURS = {"runs", "models", "tuned", "figures", "tables", "robustness", "rows.json", "about.json"}


def reproduce(
    out: str | Path,
    *,
    tables: Sequence[str] | None = None,
    figures: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: int = SEEDS,
    instances: int | None = INSTANCES,
    root: str | Path | None = None,
    resume: bool = False,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fill the paper's tables and figures and write them to `out`; without a choice, all of them.

    Rows hold the median over `seeds` base models per data set, the seeds 0, 1, … of its recipe, and 95 % intervals over
    models and instances. With one seed the shipped base models are explained and intervals are over instances.
    `instances` bounds how many of a column are explained under each base model, the first of the test part in the order
    of the seeded split; None: all that the paper explains. With the engine "processes" parts are filled side by side,
    in as many processes as there are cores or `workers`; what comes out is the same.
    `progress(label, done, total)` is told of every cell. Data sets that are not there are named in `missing`.
    """
    require_number("seeds", seeds, 1, integer=True)
    if instances is not None:
        require_number("instances", instances, 1, integer=True)
    bases = (None,) if seeds == 1 else tuple(range(seeds))
    choice = Choice.of(tables, figures, datasets, methods, bases)
    out = Path(out)
    _occupy(out, resume)
    engines.check(engine, workers)
    cells = Reproduction(out, root, "local" if engine == "processes" else engine, workers, address, progress, instances)
    started, busy = datetime.now(UTC), time.process_time()
    if engine == "processes":
        busy -= fill_parts(parts_of(choice), cells, workers or engines.cores())
    cells.total = choice.count(cells)
    with engines.ready(cells.engine, workers=workers, address=address, size=LARGEST):
        rows = _rows(cells, choice)
        drawn, files = _figures(cells, choice)
    if "sizes" in choice.figures:
        files += pictures.draw_sizes(rows, out / "figures")
    result: dict[str, Any] = as_json({"rows": rows, "figures": drawn, "files": files, "missing": cells.missing})
    about = _about(cells, started, seeds, engine) | {"cpu_minutes": round((time.process_time() - busy) / 60, 1)}
    write_json(out / "rows.json", result)
    write_json(out / "about.json", about)
    write_files(result, out / "tables")
    return result | {"about": about}


# -- what is asked for ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """What is asked for: tables, figures, data sets (None: all), rows (None: those of each table), base models."""

    tables: tuple[str, ...]
    figures: tuple[str, ...]
    datasets: tuple[str, ...] | None
    methods: tuple[str, ...] | None
    bases: tuple[BaseSeed, ...]

    @classmethod
    def of(
        cls,
        tables: Sequence[str] | None,
        figures: Sequence[str] | None,
        datasets: Sequence[str] | None,
        methods: Sequence[str] | None,
        bases: tuple[BaseSeed, ...],
    ) -> Choice:
        """The choice whose names are checked; without tables and figures, all of both."""
        every = tables is None and figures is None
        known = [*(column.name for column in COLUMNS), "mutag", *SIZES]
        if methods is not None:
            require(len(methods) > 0, "Expected at least one method", got="none")
            methods = [n if n in paper.VARIANTS else registry.get(n).name for n in dict.fromkeys(methods)]
        return cls(
            _known("table", TABLES if every else tables or (), TABLES),
            _known("figure", FIGURES if every else figures or (), FIGURES),
            None if datasets is None else _known("data set", datasets, known),
            None if methods is None else tuple(methods),
            bases,
        )

    def names(self, dataset: str) -> bool:
        """Whether a data set, or a column, is among those that are asked for."""
        return self.datasets is None or dataset in self.datasets

    def wants(self, *tables: str) -> bool:
        """Whether one of these tables is asked for."""
        return not set(tables).isdisjoint(self.tables)

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of the columns: methods, or methods of ours with other settings."""
        return self.methods or paper.ROWS

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that are asked for."""
        return tuple(column for column in COLUMNS if self.names(column.name))

    @property
    def filled(self) -> tuple[Column, ...]:
        """The columns whose cells the chosen tables need."""
        causal, truth = self.wants("causal", "reached"), self.wants("truth", "correlation")
        return tuple(column for column in self.columns if causal or (truth and column.truth))

    @property
    def varied(self) -> tuple[Column, ...]:
        """The columns of the figure of α."""
        return tuple(c for c in self.columns if "alpha" in self.figures and c.name in paper.ALPHA_COLUMNS)

    @property
    def cases(self) -> tuple[Column, ...]:
        """The columns of the figure of cases."""
        return tuple(column for column in self.columns if "cases" in self.figures and column.truth)

    def count(self, cells: Reproduction) -> int:
        """How many cells there are to fill, for the progress bar; those of missing data do not count."""

        def there(columns: Sequence[Column]) -> list[Column]:
            return [column for column in columns if cells.source(column.dataset, self.bases[0]) is not None]

        filled = sum(column.allows(method) for column in there(self.filled) for method in self.rows)
        alphas, cases = len(paper.ALPHAS) * len(there(self.varied)), len(paper.CASES) * len(there(self.cases))
        return len(self.bases) * filled + alphas + cases


def _known(kind: str, given: Sequence[str], choices: Sequence[str]) -> tuple[str, ...]:
    for name in given:
        if name not in choices:
            raise unknown_name(f"the {kind}", name, choices)
    return tuple(given)


# -- what comes out -------------------------------------------------------------------------------------------


def _rows(cells: Reproduction, choice: Choice) -> list[dict[str, Any]]:
    names = rows_of.dataset_names(choice.columns)
    rows: list[dict[str, Any]] = []
    if choice.wants("datasets"):
        rows += rows_of.datasets_rows(cells, [n for n in paper.DATASETS if n in names or choice.names(n)])
    if choice.wants("mutag") and choice.names("mutag"):
        rows += rows_of.mutag_rows(cells)
    if choice.wants("accuracy"):
        rows += rows_of.accuracy_rows(cells, names, choice.bases)
    if choice.wants("causal", "truth", "reached", "correlation"):
        tables = {"causal": choice.wants("causal", "reached"), "truth": choice.wants("truth", "correlation")}
        needed = [table for table, wanted in tables.items() if wanted]
        filled = rows_of.method_rows(cells, choice.filled, choice.rows, choice.bases, needed)
        rows += [row for row in filled if row["table"] in choice.tables]
        if choice.wants("reached"):
            rows += rows_of.reached_rows(filled)
        if choice.wants("correlation"):
            rows += rows_of.correlation_rows(filled, [column for column in choice.columns if column.truth])
    for table, make in (("robustness", robustness_rows), ("attribution", attribution_rows)):
        if choice.wants(table):
            rows += make(cells, choice.datasets, choice.methods)
    return sorted(rows, key=lambda row: TABLES.index(row["table"]))


def _figures(cells: Reproduction, choice: Choice) -> tuple[dict[str, Any], list[str]]:
    drawn: dict[str, Any] = {}
    files: list[str] = []
    if "alpha" in choice.figures:
        drawn["alpha"] = pictures.alpha_rows(cells, choice.varied, choice.bases[:1])
        files += pictures.draw_alpha(drawn["alpha"], cells.out / "figures")
    if "cases" in choice.figures:
        drawn["cases"], names = pictures.draw_cases(cells, choice.cases, choice.bases[0])
        files += names
    return drawn, files


def _about(cells: Reproduction, started: datetime, seeds: int, engine: str) -> dict[str, Any]:
    """When and with what; and seconds an explanation, where what was resumed keeps the time it took then."""
    cost = [{"dataset": d, "method": m, "seconds": seconds} for (d, m), seconds in sorted(cells.seconds.items())]
    return {
        "date": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 1),
        "base_models": "shipped" if seeds == 1 else f"{seeds} of each recipe, seeds 0 to {seeds - 1}",
        "instances": cells.instances,
        "engine": engine,
        "commit": commit(),
        "recipes": {name: asdict(RECIPES[name]) for name in rows_of.dataset_names(COLUMNS)},
        "versions": versions(),
        "cost": cost,
    }


def commit() -> str:
    """The commit of this clone, with `-dirty` where files differ from it; empty without git."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return ""


def _occupy(out: Path, resume: bool) -> None:
    """Make the directory; one that holds something is refused, unless it holds ours and is to be resumed."""
    if out.exists():
        require(out.is_dir(), "Expected a directory for the results", got=f"the file {str(out)!r}")
        there = [path.name for path in out.iterdir() if not path.name.startswith(PARTIAL)]
        foreign = [name for name in there if name not in OURS]
        if foreign or (there and not resume):
            raise CF2Error(
                "Expected an empty or new directory for the results",
                got=f"{str(out)!r}, which holds {(foreign or there)[0]}",
                do="" if foreign else "Pass --resume (resume=True) to continue it, or choose another directory.",
            )
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)


# -- parts ----------------------------------------------------------------------------------------------------
# A part is what shares base models: all columns of a data set under one seed, or a table of one data set. It is filled
# into the same directories as without workers; who puts the tables together finds it done, and does himself what a part
# left undone.


@dataclass(frozen=True)
class Part:
    """What one worker does at a time; `kind` is a table, or "columns"."""

    kind: str
    dataset: str
    methods: tuple[str, ...] | None
    columns: tuple[Column, ...] = ()
    seed: BaseSeed = None
    varied: tuple[Column, ...] = ()  # of the figure of α

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
            pictures.alpha_rows(cells, self.varied, [self.seed])


def parts_of(choice: Choice) -> list[Part]:
    """The parts that fill the chosen tables and figures, those that take longest first."""
    parts = []
    for table, datasets in (("robustness", DATASETS), ("attribution", tuple(SIZES))):
        if choice.wants(table):
            parts += [Part(table, name, choice.methods) for name in datasets if choice.names(name)]
    for seed in choice.bases:
        for name in rows_of.dataset_names(choice.columns):
            filled = tuple(column for column in choice.filled if column.dataset == name)
            varied = tuple(column for column in choice.varied if column.dataset == name and seed == choice.bases[0])
            if filled or varied or choice.wants("accuracy"):
                parts.append(Part("columns", name, choice.rows, filled, seed, varied))
    return parts


def fill_parts(parts: Sequence[Part], cells: Reproduction, workers: int) -> float:
    """Fill parts with so many processes of one thread each; the CPU seconds they took. The bar counts parts here."""
    context, cells.total = worker_context(), len(parts)
    waiting, running, busy = deque(parts), dict[Any, tuple[Part, Any, Connection]](), 0.0
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                part = waiting.popleft()
                ours, theirs = context.Pipe(duplex=False)
                own = Reproduction(cells.out, cells.root, instances=cells.instances)
                process = context.Process(target=_work, args=(theirs, part, own), daemon=True)
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
                cells.done += 1
                cells.tell(part.label)
    finally:
        for _, process, _ in running.values():
            process.terminate()
            process.join()
    cells.done = 0
    return busy


def _work(connection: Connection, part: Part, cells: Reproduction) -> None:
    import torch

    torch.set_num_threads(1)
    reason = None
    try:
        part.fill(cells)
    except Exception as error:  # whoever started this does it again, and then sees the error itself
        reason = f"{type(error).__name__}: {error}"
    with suppress(OSError):
        connection.send((time.process_time(), reason))
