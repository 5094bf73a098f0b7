"""The rows of the tables: one function per table, ours beside the published values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cf2.errors import CF2Error, require
from cf2.methods import registry
from cf2.methods.contract import EQUAL_SCORES
from cf2.options import Key
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.results.metrics import DRAWS, Estimate, harmonic_of_shares
from cf2.samples import registry as datasets
from cf2.samples import training
from reproduction import published as paper
from reproduction.cells import BaseSeed, Reproduction
from reproduction.published import COLUMNS, WAYS, Column, published
from reproduction.tables import collapsed
from reproduction.training import default_class_share, recipe_for

Row = dict[str, Any]


def datasets_rows(cells: Reproduction, names: Sequence[str]) -> list[Row]:
    """The statistics of the data sets; `columns` counts both directions of an edge."""
    rows = []
    for name in names:
        try:
            counts = datasets.statistics(name, root=cells.root)
        except CF2Error as error:
            cells.missing[name] = str(error)
            continue
        fields = ("task", "graphs", "nodes", "edges", "classes", "features", "truth")
        row = {"table": "datasets", "dataset": name, **{field: counts[field] for field in fields}}
        rows.append(row | {"columns": 2 * counts["edges"], "published": dict(paper.DATASETS[name])})
    return rows


def mutag_rows(cells: Reproduction) -> list[Row]:
    """How many mutagens and others have the benzene-NO₂ motif."""
    try:
        counts = datasets.statistics("mutag", root=cells.root)["benzene_no2"]
    except CF2Error as error:
        cells.missing["mutag"] = str(error)
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


def accuracy_rows(cells: Reproduction, names: Sequence[str], seeds: Sequence[BaseSeed]) -> list[Row]:
    """Test accuracy of the base models; `edgeless` is the share of predictions that need no edge at all."""
    rows = []
    for name in names:
        values = []
        for seed in seeds:
            source = cells.source(name, seed)
            if source is None:
                continue
            path = cells.checkpoint(name, seed)
            _, about = training.shipped(name) if path is None else training.load(path)
            dataset = datasets.load(name, root=cells.root, seed=about.dataset_seed)
            test_ids = datasets.split(dataset, about.split["seed"])[1]
            edgeless = default_class_share(source.model, dataset, test_ids)
            values.append({"accuracy": about.test_accuracy, "edgeless": edgeless})
        if values:
            row: Row = {"table": "accuracy", "dataset": name, "model": _model_line(cells, name, seeds[0])}
            row["epochs"] = recipe_for(datasets.load(name, root=cells.root)).epochs
            rows.append(row | over_seeds(values) | {"published": dict(paper.ACCURACY[name])})
    return rows


def _model_line(cells: Reproduction, name: str, seed: BaseSeed) -> str:
    source = cells.source(name, seed)
    assert source is not None
    return source.model_line.rpartition(", ")[0]


def method_rows(
    cells: Reproduction,
    columns: Sequence[Column],
    methods: Sequence[str],
    seeds: Sequence[BaseSeed],
    tables: Sequence[str],
) -> list[Row]:
    """The causal and the truth table, from the same explanations."""
    rows = []
    for column in columns:
        if "causal" not in tables and not column.truth:
            continue
        by_method = {method: cell for method in methods if (cell := _explanations(cells, column, method, seeds))}
        sizes_by_model = [
            smallest([cell[model] for cell in by_method.values()]) for model in range(len(seeds)) if by_method
        ]
        for method, cell in by_method.items():
            row = {"dataset": column.name, "method": method}
            if "causal" in tables:
                shares = [causal_values(explained, sizes) for explained, sizes in zip(cell, sizes_by_model)]
                beside = {"published": published(paper.CAUSAL, column.name, method)}
                rows.append({"table": "causal"} | row | _with_interval(shares, cell) | beside)
            if "truth" in tables and column.truth and not paper.is_truth(method):
                masks = _masks(cells, column, cell, seeds)
                values = [
                    metrics.truth(e, mask) | {"fns": metrics.fns(e), "equal": equal_scores(e)}
                    for e, mask in zip(cell, masks)
                ]
                beside = {"published": published(paper.TRUTH, column.name, method)}
                rows.append({"table": "truth"} | row | _with_interval(values, cell, masks) | beside)
    return rows


def _explanations(cells: Reproduction, column: Column, method: str, seeds: Sequence[BaseSeed]) -> list[Explanations]:
    by_seed = [cells.explanations(column, method, seed) for seed in seeds]
    return [explanations for explanations in by_seed if explanations is not None]


def causal_values(explanations: Explanations, smallest_sizes: Mapping[Key, int]) -> dict[str, Any]:
    """What the causal table says of one cell, given the smallest passing set that any method found of a key.

    `beaten` is the share of instances whose set passes although a smaller one is known. There are no seconds,
    so that a resumed table is the same to the bit.
    """
    values = metrics.summary(explanations)
    values.pop("seconds")
    units = [e.num_units for e in explanations]
    passing = [e for e in explanations if e.sufficient and e.necessary]
    proved = [e for e in passing if e.optimal]
    return values | {
        "units": float(np.mean(units)),
        "equal": equal_scores(explanations),
        "size_passed": metrics.size(passing) if passing else None,
        "optimal": len(proved) / len(explanations),
        "impossible": float(np.mean([e.status == "impossible" for e in explanations])),
        "ceiling": len(smallest_sizes) / len(explanations),
        "beaten": sum(e.size > smallest_sizes[e.key] for e in passing) / len(explanations),
    }


def equal_scores(explanations: Iterable[Explanation]) -> float:
    """The share of instances whose units all have the same score, so that the choice is the order of the units."""
    return float(np.mean([EQUAL_SCORES in e.note for e in explanations]))


def smallest(cells: Sequence[Explanations]) -> dict[Key, int]:
    """The size of the smallest set that passes both tests, by key, where some method found one."""
    sizes: dict[Key, int] = {}
    for e in (e for cell in cells for e in cell if e.sufficient and e.necessary):
        sizes[e.key] = min(e.size, sizes.get(e.key, e.size))
    return sizes


def correlation_rows(rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
    """τ and ρ between F_NS and F1 or accuracy: over the paper's four, with `cf2` as CF², and over all."""
    result = []
    groups = {
        "four": paper.FOUR,
        "four-verified": (*paper.FOUR[:-1], "cf2"),
        "all": tuple(name for name in registry.names() if not paper.is_truth(name)),
    }
    for column in columns:
        table = {row["method"]: row for row in rows if row["table"] == "truth" and row["dataset"] == column.name}
        for group, names in groups.items():
            compared = [table[name] for name in names if name in table and not collapsed(table[name])]
            if len(compared) < (4 if group != "all" else 5):
                continue
            for metric in ("f1", "acc"):
                tau, rho = metrics.correlation([row["fns"] for row in compared], [row[metric] for row in compared])
                row: Row = {"table": "correlation", "dataset": column.name, "pair": f"fns-{metric}", "group": group}
                beside = paper.CORRELATION[column.name, metric] if group != "all" else {}
                numbers = {"tau": tau, "rho": rho}
                row |= {name: None if np.isnan(value) else value for name, value in numbers.items()}
                row["methods"] = len(compared)
                result.append(row | {"published": dict(beside)})
    return result


def reached_rows(rows: Sequence[Row]) -> list[Row]:
    """By column: is the published F_NS reached by the paper's procedure, and how does the verified search stand."""
    result = []
    causal = {(row["dataset"], row["method"]): row for row in rows if row["table"] == "causal"}
    for column in COLUMNS:
        cells = [causal.get((column.name, method)) for method in (paper.FOUR[-1], paper.BY_RULE, "cf2")]
        if any(cell is None for cell in cells):
            continue
        relaxed, by_rule, verified = (cell for cell in cells if cell is not None)
        coded = causal.get((column.name, paper.AS_CODED), {"fns": None})["fns"]
        wanted = relaxed["published"]
        ways = {"with its λ": relaxed["fns"], "by its rule for λ": by_rule["fns"], "as in its code": coded}
        at = [way for way, fns in ways.items() if fns is not None and fns >= wanted["fns"]]
        full = verified["passed"] >= verified["ceiling"]
        smaller = verified["size"] <= wanted["size"]
        row: Row = {"table": "reached", "dataset": column.name, "reached": ", ".join(at) or "no"}
        row["verified"] = f"{'at' if full else 'below'} the ceiling, {'smaller' if smaller else 'larger'}"
        row |= {"lam": relaxed["fns"], "rule": by_rule["fns"], "code": coded}
        row |= {"cf2": verified["fns"], "size": verified["size"]}
        beside = {way: wanted["fns"] for way in WAYS if row[way] is not None}
        result.append(row | {"published": {"size": wanted["size"]} | beside})
    return result


def over_seeds(values: Sequence[dict[str, Any]], tables: Mapping[str, Sequence[Any]] | None = None) -> dict[str, Any]:
    """The median over base models of every number, and with several of them its 95 % interval.

    `tables` has, for a number that is a statistic over instances, what it is of, one table per base model; models and
    instances are drawn anew for its interval, and models alone for that of the other numbers.
    """
    if len(values) == 1:
        return dict(values[0])
    row: dict[str, Any] = {}
    ranges = {}
    for name in values[0]:
        numbers = [value[name] for value in values if value.get(name) is not None]
        row[name] = float(np.median(numbers)) if numbers else None
        given = (tables or {}).get(name)
        if numbers:
            statistic = harmonic_of_shares if name == "fns" and given is not None else np.mean
            estimate = over_models([[number] for number in numbers] if given is None else given, statistic)
            ranges[name] = [estimate.low, estimate.high]
    return row | {"interval": ranges, "seeds": list(values)}


def over_models(tables: Sequence[Any], statistic: Callable[..., Any] = np.mean, *, draws: int = DRAWS) -> Estimate:
    """The median over models of a statistic over instances; its interval draws models, and of each its instances, anew.

    `tables` has one per model, with one row per instance, as for `bootstrap`.
    """
    require(len(tables) > 0, "Expected at least one model", got="none")
    rng = np.random.default_rng(0)
    values, drawn = [], []
    for table in tables:
        rows = np.asarray(table, dtype=float)
        require(len(rows) > 0, "Expected at least one value to draw from", got="none")
        rows = rows.reshape(len(rows), -1)
        values.append(float(statistic(*rows.T, axis=-1)))
        positions = rng.integers(len(rows), size=(draws * len(tables), len(rows)))
        drawn.append(statistic(*(column[positions] for column in rows.T), axis=-1).reshape(draws, len(tables)))
    which = rng.integers(len(tables), size=(draws, len(tables)))
    medians = np.median(np.take_along_axis(np.stack(drawn), which[None], 0)[0], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return Estimate(float(np.median(values)), float(low), float(high))


def _with_interval(values: list[dict[str, Any]], by_model: list[Explanations], masks: Any = None) -> dict[str, Any]:
    if len(values) > 1:
        return over_seeds(values, _instance_tables(by_model, masks))
    ranges = metrics.intervals(by_model[0], None if masks is None else masks[0])
    return values[0] | {
        "interval": {name: [estimate.low, estimate.high] for name, estimate in ranges.items() if name in values[0]}
    }


def _instance_tables(by_model: Sequence[Explanations], masks: Any = None) -> dict[str, list[Any]]:
    """Of every metric that is a statistic over instances, its table for each base model."""
    verdicts = [
        np.array([[e.necessary, e.sufficient, e.size] for e in explanations], dtype=float) for explanations in by_model
    ]
    tables = {name: [table[:, column] for table in verdicts] for column, name in enumerate(("pn", "ps", "size"))}
    tables["fns"] = [table[:, :2] for table in verdicts]
    if masks is not None:
        pairs = [metrics.with_masks(explanations, mask) for explanations, mask in zip(by_model, masks)]
        scores = [
            np.array([metrics.instance_scores(e, mask)[:4] for e, mask in explanations]) for explanations in pairs
        ]
        tables |= {name: [table[:, at] for table in scores] for at, name in enumerate(metrics.TRUTH_FIELDS)}
    return tables


def _masks(
    cells: Reproduction, column: Column, by_model: Sequence[Explanations], seeds: Sequence[BaseSeed]
) -> list[Any]:
    """The planted edges of the explained keys, one mapping per base model."""
    masks = []
    for seed, explanations in zip(seeds, by_model):
        source = cells.source(column.dataset, seed)
        assert source is not None
        masks.append(source.true_edges([e.key for e in explanations]))
    return masks


def dataset_names(columns: Sequence[Column]) -> list[str]:
    """The data sets of columns, each once, in order."""
    return list(dict.fromkeys(column.dataset for column in columns))
