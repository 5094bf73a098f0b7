"""The tables filled: one function a table, each from a laboratory to rows beside the published values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cf2 import datasets, metrics, training
from cf2.errors import CF2Error
from cf2.experiments import published as paper
from cf2.experiments.cells import BaseSeed, Laboratory
from cf2.experiments.published import COLUMNS, Column, published
from cf2.explanation import Explanations
from cf2.methods.truth import planted

Row = dict[str, Any]
CAUSAL_FIELDS = ("pn", "ps", "fns", "size")
TRUTH_FIELDS = ("acc", "pr", "re", "f1")


def datasets_rows(lab: Laboratory, names: Sequence[str]) -> list[Row]:
    """The statistics of the data sets; `columns` counts both directions of an edge."""
    rows = []
    for name in names:
        try:
            counts = datasets.statistics(name, root=lab.root)
        except CF2Error as error:
            lab.missing[name] = str(error)
            continue
        fields = ("task", "graphs", "nodes", "edges", "classes", "features", "truth")
        row = {"table": "datasets", "dataset": name, **{field: counts[field] for field in fields}}
        rows.append(row | {"columns": 2 * counts["edges"], "published": dict(paper.DATASETS[name])})
    return rows


def mutag_rows(lab: Laboratory) -> list[Row]:
    """How many mutagens and others have the benzene-NO₂ motif."""
    try:
        counts = datasets.statistics("mutag", root=lab.root)["benzene_no2"]
    except CF2Error as error:
        lab.missing["mutag"] = str(error)
        return []
    return [
        {
            "table": "mutag",
            "dataset": "mutag",
            "label": label,
            "with_motif": counts[f"{label.replace('-', '_')}_with"],
            "without_motif": counts[f"{label.replace('-', '_')}_without"],
            "published": dict(values),
        }
        for label, values in paper.MUTAG.items()
    ]


def accuracy_rows(lab: Laboratory, names: Sequence[str], seeds: Sequence[BaseSeed]) -> list[Row]:
    """Test accuracy of the base models; `edgeless` is the share of predictions that need no edge at all."""
    rows = []
    for name in names:
        values = []
        for seed in seeds:
            subject = lab.subject(name, seed)
            if subject is None or subject.dataset is None or subject.test_ids is None:
                continue
            right = training.predict(subject.model, subject.dataset) == subject.dataset.labels
            accuracy = float(right[subject.test_ids].float().mean())
            edgeless = training.default_class_share(subject.model, subject.dataset, subject.test_ids)
            values.append({"accuracy": accuracy, "edgeless": edgeless})
        if values:
            row: Row = {"table": "accuracy", "dataset": name, "model": _model_line(lab, name, seeds[0])}
            row["epochs"] = training.recipe_for(datasets.load(name, root=lab.root)).epochs
            rows.append(row | over_seeds(values) | {"published": dict(paper.ACCURACY[name])})
    return rows


def _model_line(lab: Laboratory, name: str, seed: BaseSeed) -> str:
    subject = lab.subject(name, seed)
    assert subject is not None
    return subject.model_line.rpartition(", ")[0]


def method_rows(
    lab: Laboratory,
    columns: Sequence[Column],
    methods: Sequence[str],
    seeds: Sequence[BaseSeed],
    tables: Sequence[str],
) -> list[Row]:
    """The causal and the truth table, from the same explanations."""
    rows = []
    for column in columns:
        found = {
            method: cells for method in methods if (cells := _cells(lab, column, method, seeds, "causal" in tables))
        }
        known = [smallest([cells[place] for cells in found.values()]) for place in range(len(seeds)) if found]
        for method, cells in found.items():
            if "causal" in tables:
                shares = [causal_values(cell, sizes) for cell, sizes in zip(cells, known)]
                row = {"table": "causal", "dataset": column.name, "method": method}
                rows.append(row | _with_interval(shares, cells) | _beside(paper.CAUSAL, column, method))
            if "truth" in tables and column.truth and method != "truth":
                masks = _masks(lab, column, cells, seeds)
                values = [metrics.truth(cell, mask) | {"fns": metrics.fns(cell)} for cell, mask in zip(cells, masks)]
                row = {"table": "truth", "dataset": column.name, "method": method}
                rows.append(row | _with_interval(values, cells, masks) | _beside(paper.TRUTH, column, method))
    return rows


def _cells(lab: Laboratory, column: Column, method: str, seeds: Sequence[BaseSeed], causal: bool) -> list[Explanations]:
    if not causal and not column.truth:
        return []
    cells = [lab.explanations(column, method, seed) for seed in seeds]
    return [cell for cell in cells if cell is not None]


def causal_values(found: Explanations, known: Mapping[int, int]) -> dict[str, Any]:
    """What the causal table says of one cell, given the smallest passing set that any method found of a key.

    `beaten` is the share of instances whose set passes although a smaller one is known. There are no seconds,
    so that a resumed table is the same to the bit.
    """
    values = metrics.summary(found)
    values.pop("seconds")
    units = [e.num_units for e in found]
    passing = [e for e in found if e.sufficient and e.necessary]
    proved = [e for e in passing if e.optimal]
    return values | {
        "units": float(np.mean(units)),
        "size_passed": metrics.size(passing) if passing else None,
        "optimal": len(proved) / len(found),
        "impossible": float(np.mean([e.status == "impossible" for e in found])),
        "ceiling": len(known) / len(found),
        "beaten": sum(e.size > known[e.key] for e in passing) / len(found),
    }


def smallest(cells: Sequence[Explanations]) -> dict[int, int]:
    """The size of the smallest set that passes both tests, by key, where some method found one."""
    known: dict[int, int] = {}
    for e in (e for cell in cells for e in cell if e.sufficient and e.necessary):
        known[e.key] = min(e.size, known.get(e.key, e.size))
    return known


def correlation_rows(rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
    """τ and ρ between F_NS and F1 or accuracy: over the paper's four, with `cf2` as CF², and over all."""
    result = []
    groups = {
        "four": paper.FOUR,
        "four-verified": (*paper.FOUR[:-1], "cf2"),
        "all": tuple(method for method in paper.METHODS if method != "truth"),
    }
    for column in columns:
        table = {row["method"]: row for row in rows if row["table"] == "truth" and row["dataset"] == column.name}
        for group, names in groups.items():
            known = [table[name] for name in names if name in table]
            if len(known) < (4 if group != "all" else 5):
                continue
            for metric in ("f1", "acc"):
                tau, rho = metrics.correlation([row["fns"] for row in known], [row[metric] for row in known])
                row: Row = {
                    "table": "correlation",
                    "dataset": column.name,
                    "pair": f"fns-{metric}",
                    "group": group,
                }
                beside = paper.CORRELATION[column.name, metric] if group != "all" else {}
                row |= {"tau": _number(tau), "rho": _number(rho), "methods": len(known)}
                result.append(row | {"published": dict(beside)})
    return result


def over_seeds(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean over base models of every number, and with several of them the 95 % interval of that mean."""
    if len(values) == 1:
        return dict(values[0])
    from scipy.stats import t

    row: dict[str, Any] = {}
    ranges = {}
    for name in values[0]:
        known = np.array([value[name] for value in values if value.get(name) is not None], dtype=float)
        row[name] = float(known.mean()) if len(known) else None
        if len(known) > 1:
            reach = float(t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
            ranges[name] = [row[name] - reach, row[name] + reach]
    return row | {"interval": ranges, "seeds": list(values)}


def _with_interval(values: list[dict[str, Any]], cells: list[Explanations], masks: Any = None) -> dict[str, Any]:
    row = over_seeds(values)
    if len(values) == 1:
        ranges = metrics.intervals(cells[0], None if masks is None else masks[0])
        row["interval"] = {name: list(interval) for name, interval in ranges.items() if name in row}
    return row


def _masks(lab: Laboratory, column: Column, cells: Sequence[Explanations], seeds: Sequence[BaseSeed]) -> list[Any]:
    """The planted edges of the explained keys, one mapping a base model."""
    masks = []
    for seed, cell in zip(seeds, cells):
        subject = lab.subject(column.dataset, seed)
        assert subject is not None
        masks.append(planted(subject.dataset, [e.key for e in cell]))
    return masks


def _beside(table: Any, column: Column, method: str) -> dict[str, Any]:
    return {"published": published(table, column.name, method)}


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value


def dataset_names(columns: Sequence[Column]) -> list[str]:
    """The data sets of columns, each once, in order."""
    return list(dict.fromkeys(column.dataset for column in columns))


__all__ = ["COLUMNS", "accuracy_rows", "correlation_rows", "datasets_rows", "method_rows", "mutag_rows"]
