"""One cell of the tables: a method on a column under one base model, kept in a run directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error
from cf2.methods.registry import draw_seed
from cf2.options import Key, Spec
from cf2.results import metrics
from cf2.results.explanations import Explanations
from cf2.runs import engines
from cf2.runs.session import Session
from cf2.runs.source import ModelAndData
from cf2.runs.store import Store
from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.samples.sources import from_dataset
from cf2.storage import read_json, write_json
from reproduction.published import BY_COLUMN, GRIDS, TUNED, Column, method_of, paper_settings
from reproduction.training import RECIPES, train

CHUNK = 20  # keys that a killed run can lose, and the share of one worker
SHIPPED = "shipped"
TUNED_ON = 20  # training instances
GENERATED = ("ba-shapes", "tree-cycles")  # no data can be missing for these

BaseSeed = int | None  # None: the model that is shipped
Progress = Callable[[str, int, int], None]


@dataclass
class Reproduction:
    """Where cells are filled: the directory of all runs, the data, the engine, and what is told of the progress."""

    out: Path
    root: str | Path | None = None
    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    progress: Progress | None = None
    instances: int | None = None  # of a column and base model, the first so many; None: all that the paper explains
    missing: dict[str, str] = field(default_factory=dict)  # data sets that are not there, and why
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)  # per explanation, by column and method
    total: int = 0
    done: int = 0
    _sources: dict[tuple[str, BaseSeed], ModelAndData] = field(default_factory=dict)
    _keys: dict[tuple[str, BaseSeed], list[Key]] = field(default_factory=dict)

    def source(self, name: str, seed: BaseSeed) -> ModelAndData | None:
        """The base model of a data set with its data, trained if it must be; None if the data is not there."""
        if name in self.missing:
            return None
        if (name, seed) not in self._sources:
            try:
                self._sources[name, seed] = from_dataset(name, checkpoint=self.checkpoint(name, seed), root=self.root)
            except CF2Error as error:
                if name in GENERATED:
                    raise
                self.missing[name] = str(error)
                return None
        return self._sources[name, seed]

    def checkpoint(self, name: str, seed: BaseSeed) -> Path | None:
        """The path of a base model that is trained here, if it is not yet; None for the shipped one."""
        if seed is None or ships(name, seed):
            return None
        return self.trained(name, str(seed), f"train {name}, seed {seed}", seed=seed)

    def trained(self, name: str, suffix: str, label: str, **options: Any) -> Path:
        """The path of a model that is trained here with these options, if it is not yet."""
        path = self.out / "models" / f"{name}-{suffix}"
        if not path.with_suffix(".json").is_file():
            self.tell(label)
            training.save(path, *train(datasets.load(name, root=self.root), **options))
        return path

    def keys(self, name: str, seed: BaseSeed) -> list[Key]:
        """What the paper explains of a data set under a base model; it takes a pass over all the data."""
        if (name, seed) not in self._keys:
            source = self.source(name, seed)
            assert source is not None
            self._keys[name, seed] = source.keys()[: self.instances]
        return self._keys[name, seed]

    def tuned(self, column: Column, method: str) -> dict[str, Any]:
        """The settings of a grid with the highest F_NS on training instances of the first model, kept in a file."""
        path = self.out / "tuned" / f"{column.name}-{method}.json"
        if not path.is_file():
            self.tell(f"tune {method} on {column.name}")
            source = self.source(column.dataset, 0)
            assert source is not None
            assert source.keys_to_train_on is not None
            keys = source.keys_to_train_on()[-TUNED_ON:]
            sized = paper_settings(method, column.dataset, features=column.units != "edges")
            scores = []
            for own in ({}, *GRIDS[method]):
                spec = Spec(method=method, units=(column.units,), seed=draw_seed(method, 0), settings=sized | own)
                with Session(source.request(keys, spec, source.needed(spec, keys))) as session:
                    scores.append(metrics.fns(session.explain(keys)))
            best = ({}, *GRIDS[method])[scores.index(max(scores))]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"settings": best, "scores": scores, "n": len(keys)})
        settings: dict[str, Any] = read_json(path)["settings"]
        return settings

    def tell(self, label: str) -> None:
        """Tell what is being done."""
        if self.progress is not None:
            self.progress(label, self.done, self.total)

    def explanations(
        self, column: Column, row: str, seed: BaseSeed, *, folder: str = "", **changes: Any
    ) -> Explanations | None:
        """The explanations of the cell; None without the data, or where the method of the row does not apply."""
        source = self.source(column.dataset, seed) if column.allows(row) else None
        if source is None:
            return None
        self.tell(f"{row} on {column.name}" + (f", seed {seed}" if seed is not None else ""))
        method, own = method_of(row)
        own = self.tuned(column, method) if row.endswith(TUNED) else own | BY_COLUMN.get(row, {}).get(column.name, {})
        base = SHIPPED if seed is None else f"seed-{seed}"
        spec = Spec(
            method=method,
            units=(column.units,),
            seed=draw_seed(method, seed),
            settings=paper_settings(method, column.dataset, features=column.units != "edges") | own | changes,
        )
        run = Store.create(
            self.out / "runs" / base / (folder or (column.name if row == method else f"{column.name}-{row}")),
            source,
            spec,
            keys=self.keys(column.dataset, seed),
            chunk_size=CHUNK,
            resume=True,
        )
        job = run.job(spec.method, spec.seed)
        engines.explain_run(run, job, engine=self.engine, workers=self.workers, address=self.address)
        self.done += 1
        explained = run.explanations(method)
        if not folder:
            self.seconds[column.name, row] = metrics.summary(explained)["seconds"]
        return explained


def ships(name: str, seed: int) -> bool:
    """Whether the shipped model is the one that the recipe gives under a seed."""
    if name not in training.shipped_names():
        return False
    about = training.shipped(name)[1]
    return about.seed == seed and about.recipe == RECIPES[name]
