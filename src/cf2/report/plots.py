"""Plots that are no graphs: why a set is what it is (strip), what many share (cohort), size against PNS (curve)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cf2.errors import require
from cf2.models.outputs import output_kind
from cf2.report.charts import shorten
from cf2.report.pictures import check_options, escape, new_figure, save_figure
from cf2.report.scene import OKABE_ITO
from cf2.report.words import adds_or_changes, class_names, describe_prediction, describe_unit, short_said
from cf2.results.explanation import Explanation
from cf2.results.metrics import Estimate
from cf2.results.names import entry, feature_name
from cf2.units.edits import CHANGE, EDGE_KINDS

if TYPE_CHECKING:
    from cf2.results.explanations import Explanations

MAX_BARS = 24  # units of a strip that have a bar of their own
MAX_SHARED = 14  # things of a cohort that have bars
KEPT, LOST, GREY = "#0072B2", "#E69F00", "#8a8f98"


def margin(e: Explanation, values: np.ndarray, column: int | None = None) -> float:
    """How clearly these outputs [columns] are the same answer: above 0 they are, NaN where no node is left.

    Classes: the probability of the explained class minus the largest other one. Labels: twice the distance from 0.5.
    Regressions: the share of the tolerance that is left. Another class than the explained one is given by its `column`.
    """
    value = float(values[e.prediction])
    if e.tolerance is not None:
        return 1 - abs(value - e.value) / max(e.tolerance, 1e-12)
    if not output_kind(e.output).exclusive:
        return (2 * value - 1) * (1 if e.value > 0.5 else -1)
    if column is None:
        column = e.prediction if e.question == "counterfactual" else e.explained
    return float(values[column] - np.delete(values, column).max(initial=0.0))


def strip(
    e: Explanation,
    model: Any = None,
    data: Any = None,
    *,
    path: str | Path | None = None,
    size: tuple[float, float] = (9.0, 4.8),
) -> Any:
    """A bar per unit of the set, and the margin while they go one by one and come back, as `Explanation.plot` says."""
    require((model is None) == (data is None), "Expected a model with its data, or neither", got="one of them")
    require(e.size > 0, "Expected an explanation with at least one unit to draw a strip", got="none", do="See e.note.")
    order = np.flatnonzero(e.selected)
    order = order[np.argsort(-e.scores[order], kind="stable")]
    edits, count = adds_or_changes(e), len(order)
    away, back, alone = _walk(e, model, data, order)
    figure = new_figure(size)
    widths = (1.5, 1.0) if edits else (1.5, 1.0, 1.0)
    bars, *steps = figure.subplots(1, len(widths), width_ratios=widths)
    _bars(bars, e, order[:MAX_BARS], alone, data)
    verb = "made" if edits else "taken away"
    parts = [(away, f"{verb} one by one", "necessary", e.necessary)]
    parts += [] if edits else [(back, "put back into nothing", "sufficient", e.sufficient)]
    low = min(-0.1, np.nanmin(np.concatenate([away[1], back[1]]), initial=0.0)) - 0.12
    for axes, ((at, values), title, verdict, passed) in zip(steps, parts):
        axes.axhspan(0, 1.1, color=KEPT, alpha=0.07)
        axes.axhspan(low, 0, color=LOST, alpha=0.10)
        axes.axhline(0, color=GREY, linewidth=1)
        stepped = {"drawstyle": "steps-post"} if model is not None else {"linestyle": ":"}
        axes.plot(at, values, color=GREY, linewidth=1.4, **stepped)
        colours = [KEPT if value > 0 else LOST for value in np.nan_to_num(values, nan=low)]
        axes.scatter(at, np.nan_to_num(values, nan=low), c=colours, s=26, zorder=3)
        end = float(np.nan_to_num(values[-1], nan=low))
        axes.scatter(at[-1:], [end], s=130, facecolors="none", edgecolors="black", linewidths=1.4, zorder=4)
        words = f"{verdict if passed else 'not ' + verdict}"
        above = end < 0.6
        axes.annotate(
            words, (at[-1], end), (0, 12 if above else -12), textcoords="offset points", fontsize=8, ha="right",
            va="bottom" if above else "top",
        )  # fmt: skip
        axes.set(ylim=(low, 1.1), xlim=(-0.4, count + 0.4))
        axes.set_xlabel("units", fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    steps[0].set_ylabel("margin of the answer", fontsize=8)
    for axes in steps[1:]:
        axes.set_yticklabels([])
    figure.suptitle(escape(describe_prediction(e, class_names(e.context))), fontsize=11, fontweight="bold")
    note = "Above 0 the model keeps its answer. Circles: the two tests." if not edits else "Circle: after all edits."
    figure.supxlabel(note if model is not None else f"{note} Pass the model and its data for the steps.", fontsize=8)
    if path is not None:
        save_figure(figure, path)
    return figure


Walk = tuple[np.ndarray, np.ndarray]  # how many units are gone, or back, and the margin then


def _walk(e: Explanation, model: Any, data: Any, order: np.ndarray) -> tuple[Walk, Walk, np.ndarray | None]:
    """Margins while units go in this order, while they come back, and by how much each alone lowers the margin."""
    count = len(order)
    if model is None:
        whole, only, without = (
            margin(e, part) for part in (e.probabilities, e.probabilities_only, e.probabilities_without)
        )
        ends = np.array([0, count])
        return (ends, np.array([whole, without])), (ends[1:], np.array([only])), None
    from cf2.runs.check import outputs_at

    at = np.unique(np.linspace(0, count, min(count, 60) + 1).round().astype(int))
    states = np.ones((2 * len(at) + count, len(e.units)), dtype=bool)
    for row, many in enumerate(at):
        states[row, order[:many]] = False
        states[len(at) + row] = False
        states[len(at) + row, order[:many]] = True
    states[2 * len(at) + np.arange(count), order] = False
    margins = np.array([margin(e, row) for row in outputs_at(e, model, data, states)])
    away, back, alone = np.split(margins, [len(at), 2 * len(at)])
    return (at, away), (at, back), margins[0] - alone


def _bars(axes: Any, e: Explanation, rows: np.ndarray, alone: np.ndarray | None, data: Any) -> None:
    """A bar per unit: by how much it alone lowers the margin, or its score where no model was given."""
    lengths = e.scores[rows] if alone is None else alone[: len(rows)]
    names = [escape(shorten(f"{describe_unit(e, row)}{_value(e, row, data)}", 34)) for row in rows.tolist()]
    axes.barh(range(len(rows)), lengths, 0.62, color=[KEPT if part >= 0 else LOST for part in lengths])
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set(ylim=(max(len(rows), 3) - 0.4, -0.6))
    axes.set_xlabel("score" if alone is None else "margin lost without it alone", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.locator_params(axis="x", nbins=5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    hidden = e.size - len(rows)
    axes.set_title(
        f"the set: {e.size} of {e.num_units:,} units" + (f", {hidden} not shown" if hidden else ""), fontsize=9
    )


def _value(e: Explanation, row: int, data: Any) -> str:
    """' = 0.5' of a feature entry, where the data is known and has no types."""
    x = getattr(data, "x", None)
    if isinstance(e.key, int) and e.task == "graph" and data is not None and x is None:
        x = getattr(data[e.key], "x", None)
    if e.units.names[e.units.kind[row]] != "features" or e.types is not None or x is None:
        return ""
    node, column = e.units.ids[row].tolist()
    return f" = {float(x[node, column]):.4g}"


# -- what many answers share ---------------------------------------------------------------------------------


def contents(e: Explanation) -> set[str]:
    """What an answer consists of, without ids: names of features, edge types, elements at bonds, kinds of edits."""
    found: set[str] = set()
    elements = (entry(e.context.get("graphs"), e.key) or {}).get("labels") or ()
    explained = set(e.key if isinstance(e.key, tuple) else (e.key,))
    for row in np.flatnonzero(e.selected).tolist():
        name, (first, second) = e.units.names[e.units.kind[row]], e.units.ids[row].tolist()
        edit = "" if name == "edges" or name not in EDGE_KINDS else "added "
        if name == CHANGE.unit_kind:
            source = int(e.units.values[row, 0])
            old = f"{feature_name(e, source, first)} → " if source >= 0 else ""
            found.add(f"{old}{feature_name(e, second, first)}")
        elif name in EDGE_KINDS and e.types is not None:
            found.add(edit + " ".join(e.types.edges[e.units.types[row]]))
        elif name in EDGE_KINDS and max(first, second) < len(elements):
            found.add(edit + "–".join(sorted((str(elements[first]), str(elements[second])))))
        elif name in EDGE_KINDS and e.task != "graph":
            found.add(
                f"{edit}edge of the explained {e.task}" if explained & {first, second} else f"{edit}edge further away"
            )
        elif name == "nodes" and first < len(elements):
            found.add(str(elements[first]))
        elif name in ("features", "columns"):
            found.add(feature_name(e, second, first))
        else:
            found.add(describe_unit(e, row) if name == "units" else name.replace("_", " "))
    return found


def shared(found: Sequence[Explanation]) -> list[tuple[str, dict[str, tuple[int, int]]]]:
    """What occurs in how many of how many answers of each class, the most frequent first."""
    answers = [e for e in found if e.size and not e.rank]
    names = {id(e): short_said(e, class_names(e.context)) for e in answers}
    if answers and not output_kind(answers[0].output).exclusive:
        names = dict.fromkeys(names, "all")
    totals = Counter(names.values())
    counts: dict[str, Counter[str]] = {}
    for e in answers:
        for content in contents(e):
            counts.setdefault(content, Counter())[names[id(e)]] += 1
    ranked = sorted(counts, key=lambda content: (-counts[content].total(), content))
    return [(content, {name: (counts[content][name], total) for name, total in totals.items()}) for content in ranked]


def share(count: int, total: int) -> Estimate:
    """A share with its 95 % interval (Clopper and Pearson)."""
    from scipy.stats import binomtest

    low, high = binomtest(count, total).proportion_ci(method="exact")
    return Estimate(count / total, float(low), float(high))


def cohort(found: Explanations, *, path: str | Path | None = None) -> Any:
    """Bars of what answers share by class, with 95 % intervals, and the distribution of their sizes."""
    rows = shared(found)
    require(bool(rows), "Expected at least one explanation that chose something", got=f"none of {len(found)}")
    classes = list(rows[0][1])[: len(OKABE_ITO)]
    shown, thick = rows[:MAX_SHARED], 0.8 / len(classes)
    figure = new_figure((10.0, float(np.clip(1.2 + 0.12 * len(shown) * (1 + len(classes)), 3.2, 9.0))))
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
    for place, name in enumerate(classes):
        for line, (_, by_class) in enumerate(shown):
            count, total = by_class[name]
            estimate = share(count, total)
            y = line + (place - (len(classes) - 1) / 2) * thick
            label = f"{shorten(name, 24)} ({total})" if not line else None
            left.barh(
                y, estimate.value, thick * 0.9, color=OKABE_ITO[place], label=None if label is None else escape(label)
            )
            if count:
                left.plot([estimate.low, estimate.high], [y, y], color="#333", linewidth=1)
    left.set_yticks(range(len(shown)), [escape(shorten(content, 34)) for content, _ in shown], fontsize=8)
    left.set(xlim=(0, 1), ylim=(len(shown) - 0.4, -0.6))
    left.set_xlabel("share of the answers of a class that hold it, with 95 % interval", fontsize=8)
    left.legend(loc="lower right", fontsize=8, frameon=False)
    sizes = [e.size for e in found if e.size and not e.rank]
    right.hist(sizes, bins=np.arange(0.5, min(max(sizes), 40) + 1.5), color=GREY, rwidth=0.9)
    right.set_xlabel("units of an answer", fontsize=8)
    right.yaxis.get_major_locator().set_params(integer=True)
    right.tick_params(axis="y", labelsize=7)
    right.set_title(f"{len(sizes)} answers, mean size {np.mean(sizes):.1f}", fontsize=9)
    hidden = f"; {len(rows) - len(shown)} rarer ones not shown" if len(rows) > len(shown) else ""
    left.set_title(f"What answers hold{hidden}", fontsize=9)
    for axes in (left, right):
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    if path is not None:
        save_figure(figure, path)
    return figure


def curve(e: Explanation, ax: Any, path: str | Path | None, size: tuple[float, float]) -> Any:
    """Size against PNS of the sets that a search for a sure one came by, the one that is given marked."""
    require(
        bool(e.curve),
        "Expected an explanation with a curve, which a search with `surely` keeps",
        got=f"surely={e.surely}, status={e.status!r}",
        do="Pass surely=0.9 to cf2.explain.",
    )
    check_options(None, size)
    axes = new_figure(size).subplots() if ax is None else ax
    sizes, shares = zip(*e.curve)
    axes.plot(sizes, shares, marker="o", color=OKABE_ITO[0], label="by the contexts of the search")
    if e.pns is not None:
        value, low, high = e.pns
        error = [[value - low], [high - value]]
        axes.errorbar([e.size], [value], error, fmt="s", color=OKABE_ITO[1], label="the set given, on fresh contexts")
    if e.surely is not None:
        axes.axhline(e.surely, color="0.5", linestyle=":", label=f"asked for: {e.surely:g}")
    axes.set(xlabel="size", ylabel="PNS", ylim=(0, 1.05))
    axes.legend(fontsize=8)
    if path is not None:
        save_figure(axes.figure, path)
    return axes.figure if ax is None else ax
