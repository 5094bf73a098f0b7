"""One cell of the tables: a method on a column under one base model, kept in a run directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cf2 import api, datasets, engines, metrics, training
from cf2.datasets import PAPER
from cf2.errors import CF2Error
from cf2.experiments.published import COLUMNS, Column
from cf2.explanation import Explanations
from cf2.methods import get
from cf2.methods.trained import Trained
from cf2.methods.truth import planted
from cf2.runs import Run, create_run
from cf2.subjects import Subject, from_dataset
from cf2.work import SETTLE

CHUNK = 20  # keys that a killed run can lose, and the share of one worker
FITTED_ON = 200  # training instances of a learned method
SHIPPED = "shipped"

BaseSeed = int | None  # None: the model that is shipped
Progress = Callable[[str, int, int], None]


def settings_for(method: str, column: Column) -> dict[str, Any]:
    """The paper's settings: its λ and threshold for its own method, its K for those of a fixed size."""
    paper = PAPER[column.dataset]
    if method == "cf2-relaxed":
        return {"lam": paper.lam, "threshold": paper.threshold}
    if method in ("gnnexplainer", "gem", "pgexplainer", "gradient", "random"):
        return {"k": paper.k_features if column.features else paper.k}
    return {}


@dataclass
class Laboratory:
    """Where the cells are filled: the directory of all runs, the data, the engine, and who is told of it."""

    out: Path
    root: str | Path | None = None
    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    progress: Progress | None = None
    missing: dict[str, str] = field(default_factory=dict)  # data sets that are not there, and why
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)  # an explanation, by column and method
    total: int = 0
    done: int = 0
    _subjects: dict[tuple[str, BaseSeed], Subject] = field(default_factory=dict)
    _keys: dict[tuple[str, BaseSeed], list[int]] = field(default_factory=dict)

    def subject(self, name: str, seed: BaseSeed) -> Subject | None:
        """The base model of a data set, trained if it must be; None if the data is not there."""
        if name in self.missing:
            return None
        if (name, seed) not in self._subjects:
            try:
                self._subjects[name, seed] = self._load(name, seed)
            except CF2Error as error:
                if name in ("ba-shapes", "tree-cycles"):  # made here, so nothing can be missing
                    raise
                self.missing[name] = str(error)
                return None
        return self._subjects[name, seed]

    def _load(self, name: str, seed: BaseSeed) -> Subject:
        if seed is None:
            return from_dataset(name, root=self.root)
        path = self.out / "models" / f"{name}-{seed}"
        if not path.with_suffix(".json").is_file():
            self.say(f"train {name}, seed {seed}")
            training.save(path, *training.train(datasets.load(name, root=self.root), seed=seed))
        return from_dataset(name, checkpoint=path, root=self.root)

    def keys(self, name: str, seed: BaseSeed) -> list[int]:
        """What the paper explains of a data set under a base model; it takes a pass over all the data."""
        if (name, seed) not in self._keys:
            subject = self.subject(name, seed)
            assert subject is not None
            self._keys[name, seed] = subject.keys()
        return self._keys[name, seed]

    def say(self, label: str) -> None:
        """Tell what is being done."""
        if self.progress is not None:
            self.progress(label, self.done, self.total)

    def run(self, column: Column, method: str, seed: BaseSeed, *, place: str = "", **changes: Any) -> Run | None:
        """The finished run that holds the cell; None without the data, or where the method does not apply."""
        subject = self.subject(column.dataset, seed) if column.allows(method) else None
        if subject is None:
            return None
        self.say(f"{method} on {column.name}" + (f", seed {seed}" if seed is not None else ""))
        base = SHIPPED if seed is None else f"seed-{seed}"
        run = create_run(
            self.out / "runs" / base / (place or column.name),
            subject=subject,
            keys=self.keys(column.dataset, seed),
            method=method,
            settings=settings_for(method, column) | changes,
            seed=draw_seed(method, seed),
            edges=not column.features,
            features=column.features,
            chunk_size=CHUNK,
            resume=True,
        )
        self._fill(run, method, draw_seed(method, seed))
        self.done += 1
        return run

    def explanations(
        self, column: Column, method: str, seed: BaseSeed, *, place: str = "", **changes: Any
    ) -> Explanations | None:
        """The explanations of the cell; None as in `run`."""
        run = self.run(column, method, seed, place=place, **changes)
        if run is None:
            return None
        found = run.explanations(method)
        if not place:
            self.seconds[column.name, method] = metrics.summary(found)["seconds"]
        return found

    def _fill(self, run: Run, method: str, seed: int | None) -> None:
        if method == "truth":
            self._write_truth(run)
            return
        engines.explain_run(
            run,
            method=method,
            seed=seed,
            engine=self.engine,
            workers=self.workers,
            address=self.address,
            fit=lambda: fit(run.subject(), method, run.job(method, seed).settings, seed or 0),
        )

    def _write_truth(self, run: Run) -> None:
        """The planted motifs as explanations: nothing to send anywhere, so it is done here."""
        keys, subject = run.keys, run.subject()
        work = subject.work(keys, method="truth", trained=planted(subject.dataset, keys))
        pending = run.pending("truth")
        if pending:
            engines.explain_chunks(work, pending, keys[:SETTLE], on_chunk=run.write)


def draw_seed(method: str, seed: BaseSeed) -> int | None:
    """The seed of a method's own draws: that of the base model for methods that draw, none for the others."""
    return (seed or 0) if method == "random" or get(method).fit is not None else None


def fit(subject: Subject, method: str, settings: dict[str, Any], seed: int) -> Trained:
    """Train a learned method on training instances of the kind that is explained."""
    assert subject.dataset is not None
    assert subject.test_ids is not None
    rest = torch.ones(len(subject), dtype=torch.bool)
    rest[subject.test_ids] = False
    predictions = training.predict(subject.model, subject.dataset)
    train_ids = rest.nonzero().flatten()
    keys = datasets.instances_to_explain(subject.dataset, train_ids, predictions)[:FITTED_ON].tolist()
    data = subject.graphs[0] if subject.task == "node" else subject.graphs
    return api.fit(subject.model, data, keys, method=method, seed=seed, **settings)


def column_named(name: str) -> Column:
    """The column of that name."""
    return next(column for column in COLUMNS if column.name == name)
