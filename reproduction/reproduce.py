"""The whole paper in one call: runs that can be killed and resumed, then tables and figures on disk."""

from __future__ import annotations

import logging
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
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
    chosen_tables = _choose("table", tables, TABLES, [] if figures is not None else TABLES)
    chosen_figures = _choose("figure", figures, FIGURES, [] if tables is not None else FIGURES)
    names = _choose("data set", datasets, [*(c.name for c in COLUMNS), "mutag", *SIZES], None)
    chosen_methods = _methods(methods)
    out = Path(out)
    _occupy(out, resume)
    engines.check(engine, workers)
    cells = Reproduction(out, root, "local" if engine == "processes" else engine, workers, address, progress, instances)
    bases: list[BaseSeed] = [None] if seeds == 1 else list(range(seeds))
    started, busy = datetime.now(UTC), time.process_time()
    columns = [column for column in COLUMNS if names is None or column.name in names]
    if engine == "processes":
        asked = (chosen_tables, chosen_figures, columns, names, chosen_methods, bases, methods is not None)
        busy -= _side_by_side(cells, parts_of(*asked), workers or engines.cores())
    cells.total = _count(cells, chosen_tables, chosen_figures, columns, chosen_methods, bases)
    with engines.ready(cells.engine, workers=workers, address=address, size=LARGEST):
        rows = _rows(cells, chosen_tables, columns, names, chosen_methods, bases, methods is not None)
        drawn, files = _figures(cells, chosen_figures, columns, bases)
    if "sizes" in chosen_figures:
        files += pictures.draw_sizes(rows, out / "figures")
    result: dict[str, Any] = as_json({"rows": rows, "figures": drawn, "files": files, "missing": cells.missing})
    about = _about(cells, started, seeds, engine) | {"cpu_minutes": round((time.process_time() - busy) / 60, 1)}
    _write(out, result, about)
    return result | {"about": about}


def _rows(
    cells: Reproduction,
    tables: Sequence[str],
    columns: Sequence[Column],
    names: Sequence[str] | None,
    methods: Sequence[str],
    bases: Sequence[BaseSeed],
    asked: bool,
) -> list[dict[str, Any]]:
    column_sets = rows_of.dataset_names(columns)
    rows: list[dict[str, Any]] = []
    if "datasets" in tables:
        rows += rows_of.datasets_rows(
            cells, [n for n in paper.DATASETS if names is None or n in {*column_sets, *names}]
        )
    if "mutag" in tables and (names is None or "mutag" in names):
        rows += rows_of.mutag_rows(cells)
    if "accuracy" in tables:
        rows += rows_of.accuracy_rows(cells, column_sets, bases)
    needed = [table for table in ("causal", "truth") if table in tables]
    if "reached" in tables and "causal" not in needed:
        needed.append("causal")
    if "correlation" in tables and "truth" not in needed:
        needed.append("truth")
    if needed:
        filled = rows_of.method_rows(cells, columns, methods, bases, needed)
        rows += [row for row in filled if row["table"] in tables]
        if "reached" in tables:
            rows += rows_of.reached_rows(filled)
        if "correlation" in tables:
            rows += rows_of.correlation_rows(filled, [column for column in columns if column.truth])
    for table, make in (("robustness", robustness_rows), ("attribution", attribution_rows)):
        if table in tables:
            rows += make(cells, names, methods if asked else None)
    return sorted(rows, key=lambda row: TABLES.index(row["table"]))


def _figures(
    cells: Reproduction, figures: Sequence[str], columns: Sequence[Column], bases: Sequence[BaseSeed]
) -> tuple[dict[str, Any], list[str]]:
    drawn: dict[str, Any] = {}
    files: list[str] = []
    if "alpha" in figures:
        shown = [column for column in columns if column.name in paper.ALPHA_COLUMNS]
        drawn["alpha"] = pictures.alpha_rows(cells, shown, bases[:1])
        files += pictures.draw_alpha(drawn["alpha"], cells.out / "figures")
    if "cases" in figures:
        shown = [column for column in columns if column.truth]
        drawn["cases"], names = pictures.draw_cases(cells, shown, bases[0])
        files += names
    return drawn, files


def _count(
    cells: Reproduction,
    tables: Sequence[str],
    figures: Sequence[str],
    columns: Sequence[Column],
    methods: Sequence[str],
    bases: Sequence[BaseSeed],
) -> int:
    """How many cells there are to fill, for the progress bar; those of missing data do not count."""
    wanted = {"causal", "reached", "truth", "correlation"} & set(tables)
    explained = [column for column in columns if wanted and (column.truth or {"causal", "reached"} & set(tables))]
    filled = sum(column.allows(m) for column in explained if _there(cells, column, bases) for m in methods)
    alphas = [c for c in columns if "alpha" in figures and c.name in paper.ALPHA_COLUMNS and _there(cells, c, bases)]
    cases = [column for column in columns if "cases" in figures and column.truth and _there(cells, column, bases)]
    return len(bases) * filled + len(paper.ALPHAS) * len(alphas) + len(paper.CASES) * len(cases)


def _there(cells: Reproduction, column: Column, bases: Sequence[BaseSeed]) -> bool:
    return cells.source(column.dataset, bases[0]) is not None


def _side_by_side(cells: Reproduction, parts: Sequence[Part], workers: int) -> float:
    """Have processes fill the parts; the CPU seconds that they took. The bar counts parts, and then cells."""
    cells.total = len(parts)

    def tell(label: str) -> None:
        cells.done += 1
        cells.tell(label)

    busy = fill_parts(parts, out=cells.out, root=cells.root, instances=cells.instances, workers=workers, tell=tell)
    cells.done = 0
    return busy


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


def _choose(kind: str, given: Sequence[str] | None, choices: Sequence[str], default: Sequence[str] | None) -> Any:
    if given is None:
        return default
    for name in given:
        if name not in choices:
            raise unknown_name(f"the {kind}", name, choices)
    return list(given)


def _methods(given: Sequence[str] | None) -> list[str]:
    if given is None:
        return list(paper.ROWS)
    require(len(given) > 0, "Expected at least one method", got="none")
    return [name if name in paper.VARIANTS else registry.get(name).name for name in dict.fromkeys(given)]


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
                do="" if foreign else "Pass --resume (resume=True) to go on with it, or choose another directory.",
            )
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)


def _write(out: Path, result: dict[str, Any], about: dict[str, Any]) -> None:
    write_json(out / "rows.json", result)
    write_json(out / "about.json", about)
    write_files(result, out / "tables")


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
                shown = [column for column in self.columns if column.name in paper.ALPHA_COLUMNS]
                pictures.alpha_rows(cells, shown, [self.seed])


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
    for table, datasets in (("robustness", DATASETS), ("attribution", tuple(SIZES))):
        if table in tables:
            parts += [Part(table, name, own) for name in datasets if names is None or name in names]
    causal = bool({"causal", "reached"} & set(tables))
    truth = bool({"truth", "correlation"} & set(tables))
    for seed in bases:
        drawn = tuple(figures) if seed == bases[0] else ()
        for name in dict.fromkeys(column.dataset for column in columns):
            own_columns = tuple(column for column in columns if column.dataset == name)
            filled = tuple(column for column in own_columns if causal or (truth and column.truth))
            wanted = "accuracy" in tables or any(column.name in paper.ALPHA_COLUMNS for column in own_columns if drawn)
            if filled or wanted:
                parts.append(
                    Part("columns", name, tuple(methods) if filled else (), filled or own_columns, seed, drawn)
                )
    return parts


def fill_parts(
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
