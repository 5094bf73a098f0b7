"""Explanations against truth that others published: the benzene rings and fluoride carbonyls of GraphAttribution.

A molecule may have several acceptable explanations, and an answer is compared with the one that it fits best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cf2.errors import CF2Error
from cf2.methods import registry
from cf2.methods.registry import draw_seed
from cf2.options import Spec
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.results.metrics import bootstrap, true_units
from cf2.runs import engines
from cf2.runs.source import ModelAndData
from cf2.runs.store import Store
from cf2.samples import registry as datasets
from cf2.samples.models import ARCHITECTURES
from cf2.samples.sources import from_dataset
from reproduction import published as paper
from reproduction.cells import Reproduction, ships
from reproduction.rows import equal_scores
from reproduction.training import recipe_for

SIZES = {"benzene": 6, "fluoride-carbonyl": 2}  # what methods of a fixed size are told: a ring; one bond of each group
INSTANCES = 40

Row = dict[str, Any]


def attribution_rows(
    cells: Reproduction, names: Sequence[str] | None = None, methods: Sequence[str] | None = None
) -> list[Row]:
    """One row per data set, kind of layer and method, on models of seed 0."""
    rows = []
    for name in (name for name in SIZES if names is None or name in names):
        for arch in ARCHITECTURES:
            try:
                source = _model(cells, name, arch)
            except CF2Error as error:
                cells.missing[name] = str(error)
                break
            keys = source.keys()[: min(cells.instances or INSTANCES, INSTANCES)]
            accuracy = float(source.model_line.rpartition(" ")[2])
            for method in (method for method in paper.ATTRIBUTION_ROWS if methods is None or method in methods):
                cells.tell(f"{method} on {name}, {arch}")
                settings = {"k": SIZES[name]} if "k" in registry.get(method).paper else {}
                spec = Spec(method=method, seed=draw_seed(method, None), settings=settings)
                run = Store.create(cells.out / "runs" / arch / name, source, spec, keys=keys, resume=True)
                engines.explain_run(run, run.job(spec.method, spec.seed), engine="local")
                row: Row = {"table": "attribution", "dataset": name, "model": arch, "method": method}
                rows.append(row | {"accuracy": accuracy} | fit(source, list(run.explanations(method))))
    return rows


def _model(cells: Reproduction, name: str, arch: str) -> ModelAndData:
    if arch == recipe_for(datasets.load(name, root=cells.root)).arch and ships(name, 0):
        return from_dataset(name, root=cells.root)
    path = cells.trained(name, arch, f"train {arch} on {name}", arch=arch, seed=0)
    return from_dataset(name, checkpoint=path, root=cells.root)


def fit(source: ModelAndData, explanations: Sequence[Explanation]) -> Row:
    """F1 and Jaccard against the acceptable truth that fits best, with the verdicts and the size."""
    scores = np.array(
        [best_fit(e, [true_units(e, mask, source.graphs) for mask in source.truths(e.key)]) for e in explanations]
    )
    estimates = {name: bootstrap(scores[:, column]) for column, name in enumerate(("f1", "jaccard"))}
    row: Row = {name: estimate.value for name, estimate in estimates.items()}
    row |= {
        "equal": equal_scores(explanations),
        "n": len(explanations),
        "fns": metrics.fns(explanations),
        "size": metrics.size(explanations),
    }
    return row | {"interval": {name: [estimate.low, estimate.high] for name, estimate in estimates.items()}}


def best_fit(e: Explanation, truths: Sequence[np.ndarray]) -> tuple[float, float]:
    """F1 and Jaccard of the chosen edges against the truth with the highest F1; truths are bool [edge units]."""
    chosen = e.selected[e.units.where("edges")]
    values = [(0.0, 0.0)]
    for true in truths:
        hits, total = int((true & chosen).sum()), int(true.sum() + chosen.sum())
        values.append((2 * hits / max(total, 1), hits / max(total - hits, 1)))
    return max(values)
