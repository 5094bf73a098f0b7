"""Plots without a graph: why a set is what it is (strip), what many sets share (cohort), size against PNS (curve)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cf2.errors import require
from cf2.models.outputs import output_kind
from cf2.report.charts import shorten
from cf2.report.pictures import check_options, escape, halo, new_figure, saved
from cf2.report.scene import OKABE_ITO, is_molecule
from cf2.report.words import (
    adds_or_changes,
    count_nouns,
    count_units,
    describe_prediction,
    describe_unit,
    short_said,
    unit_nouns,
    unit_words,
)
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.results.names import entry, feature_name
from cf2.units.edits import CHANGE, EDGE_KINDS, edit_of

if TYPE_CHECKING:
    from cf2.results.explanations import Explanations

MAX_BARS = 24  # units of a strip that have a bar of their own
MAX_SHARED = 14  # rows of a cohort plot
MAX_BINS = 40  # of the distribution of sizes
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
    """A bar per unit of the set, and the margin while units are removed one by one and added to an empty graph."""
    require((model is None) == (data is None), "Expected a model with its data, or neither", got="one of them")
    require(e.size > 0, "Expected an explanation with at least one unit to draw a strip", got="none", do="See e.note.")
    order = np.flatnonzero(e.selected)
    order = order[np.argsort(-e.scores[order], kind="stable")]
    edits = adds_or_changes(e)
    away, back, alone = _walk(e, model, data, order)
    steps = [(away, "edits made one by one", "changed", e.necessary)]
    if not edits:
        empty = "nothing" if e.task == "input" else "the empty graph"
        steps = [
            (away, "removed one by one", "necessary", e.necessary),
            (back, f"added to {empty}", "sufficient", e.sufficient),
        ]
    figure = new_figure(size)
    bars, *panels = figure.subplots(1, 1 + len(steps), width_ratios=(1.5, *[1.0] * len(steps)))
    _bars(bars, e, order[:MAX_BARS], alone, data)
    low = min(-0.1, np.nanmin(np.concatenate([away[1], back[1]]), initial=0.0)) - 0.25
    for axes, ((counts, margins), title, verdict, passed) in zip(panels, steps):
        _draw_steps(axes, counts, np.nan_to_num(margins, nan=low), model is not None)
        # The test is the last point; its verdict is written inside of the panel.
        end = float(np.nan_to_num(margins[-1], nan=low))
        below = margins[-1] < margins[0]  # where the curve does not come from
        axes.annotate(
            verdict if passed else f"not {verdict}", (counts[-1], end), (0, -14 if below else 14), path_effects=halo(),
            textcoords="offset points", fontsize=8, ha="right", va="top" if below else "bottom", zorder=5,
        )  # fmt: skip
        axes.set(ylim=(low, 1.25), xlim=(-0.05 * e.size - 0.3, 1.05 * e.size + 0.3))
        axes.axhspan(0, 1.25, color=KEPT, alpha=0.07)
        axes.axhspan(low, 0, color=LOST, alpha=0.10)
        axes.set_xlabel(unit_nouns(e), fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("margin of the prediction", fontsize=8)
    for axes in panels[1:]:
        axes.set_yticklabels([])
    figure.suptitle(escape(describe_prediction(e)), fontsize=11, fontweight="bold")
    note = "Above 0 the prediction is unchanged. "
    note += "The circle marks the result of all edits." if edits else "The circles mark the two tests."
    figure.supxlabel(note if model is not None else f"{note} Pass the model and its data to see the steps.", fontsize=8)
    return saved(figure, path)


def _draw_steps(axes: Any, counts: np.ndarray, margins: np.ndarray, stepped: bool) -> None:
    """The margin after each step, coloured by whether the prediction holds, with a circle around the last one."""
    style = {"drawstyle": "steps-post"} if stepped else {"linestyle": ":"}
    axes.axhline(0, color=GREY, linewidth=1)
    axes.plot(counts, margins, color=GREY, linewidth=1.4, **style)
    axes.scatter(counts, margins, c=[KEPT if value > 0 else LOST for value in margins], s=26, zorder=3)
    axes.scatter(counts[-1:], margins[-1:], s=130, facecolors="none", edgecolors="black", linewidths=1.4, zorder=4)


Walk = tuple[np.ndarray, np.ndarray]  # how many units are gone, or back, and the margin at that point


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
    """A bar per unit: by how much it alone lowers the margin, or its score without a model."""
    lengths = e.scores[rows] if alone is None else alone[: len(rows)]
    names = [escape(shorten(f"{_unit_name(e, row)}{_value(e, row, data)}", 34)) for row in rows.tolist()]
    axes.barh(range(len(rows)), lengths, 0.62, color=[KEPT if part >= 0 else LOST for part in lengths])
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set(ylim=(max(len(rows), 6) - 0.4, -0.6))
    effect = "margin lost by this edit alone" if adds_or_changes(e) else "margin lost when it alone is removed"
    axes.set_xlabel("score" if alone is None else effect, fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.locator_params(axis="x", nbins=5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    hidden = e.size - len(rows)
    title = f"{count_units(e)} of {e.num_units:,} units"
    if adds_or_changes(e):
        title = f"{count_nouns(e.size, 'edit')} of {e.num_units:,} possible"
    elif len(e.units.names) == 1:
        title = f"{e.size} of {count_nouns(e.num_units, *unit_words(e.units.names[0])[:2])}"
    title += f", {hidden} not shown" if hidden else ""
    axes.set_title(title, fontsize=9)


def _unit_name(e: Explanation, row: int) -> str:
    """A unit by name: an edit with its verb, a bond with its elements ('N9–O15')."""
    name, ids = e.units.names[e.units.kind[row]], e.units.ids[row].tolist()
    elements = (entry(e.context.get("graphs"), e.key) or {}).get("labels") or ()
    text = describe_unit(e, row)
    if name in EDGE_KINDS and is_molecule(e.context) and max(ids) < len(elements):
        text = "–".join(f"{elements[atom]}{atom}" for atom in ids)
    return f"{edit_of(name).name} {text}" if adds_or_changes(e) else text


def _value(e: Explanation, row: int, data: Any) -> str:
    """The value of a feature entry, ' = 0.5', if the data is known and has no types."""
    x = getattr(data, "x", None)
    if isinstance(e.key, int) and e.task == "graph" and data is not None and x is None:
        x = getattr(data[e.key], "x", None)
    if e.units.names[e.units.kind[row]] != "features" or e.types is not None or x is None:
        return ""
    node, column = e.units.ids[row].tolist()
    return f" = {float(x[node, column]):.4g}"


# -- what many answers share ---------------------------------------------------------------------------------


def contents(e: Explanation) -> set[str]:
    """What an explanation contains, without ids: features, edge types, elements at bonds, kinds of edits, by name."""
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
    """Each content with how many of how many explanations of each class contain it, the most frequent first."""
    answers = [e for e in found if e.size and not e.rank]
    names = {id(e): short_said(e) for e in answers}
    if answers and not output_kind(answers[0].output).exclusive:
        names = dict.fromkeys(names, "all")
    totals = Counter(names.values())
    counts: dict[str, Counter[str]] = {}
    for e in answers:
        for content in contents(e):
            counts.setdefault(content, Counter())[names[id(e)]] += 1
    ranked = sorted(counts, key=lambda content: (-counts[content].total(), content))
    return [(content, {name: (counts[content][name], total) for name, total in totals.items()}) for content in ranked]


def share(count: int, total: int) -> metrics.Estimate:
    """A share with the interval that shares have everywhere."""
    return metrics.share([True] * count + [False] * (total - count))


def cohort(found: Explanations, *, path: str | Path | None = None) -> Any:
    """Bars of what explanations share by class, with 95 % intervals, and the distribution of their sizes."""
    rows = shared(found)
    require(bool(rows), "Expected at least one explanation that chose something", got=f"none of {len(found)}")
    classes = list(rows[0][1])[: len(OKABE_ITO)]
    frequent = [row for row in rows if sum(count for count, _ in row[1].values()) > 1] or rows
    shown, thick = frequent[:MAX_SHARED], 0.8 / len(classes)
    figure = new_figure((10.0, float(np.clip(1.6 + 0.12 * len(shown) * (1 + len(classes)), 3.2, 9.0))))
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
    for place, name in enumerate(classes):
        estimates = [share(*by_class[name]) for _, by_class in shown]
        at = np.arange(len(shown)) + (place - (len(classes) - 1) / 2) * thick
        values = np.array([estimate.value for estimate in estimates])
        label = escape(f"{shorten(name, 24)} (n = {rows[0][1][name][1]})")
        left.barh(at, values, thick * 0.9, color=OKABE_ITO[place], alpha=0.75, label=label)
        some = np.flatnonzero(values)
        ends = np.array([(estimate.low, estimate.high) for estimate in estimates]).T
        left.errorbar(
            values[some], at[some], xerr=np.abs(ends - values)[:, some], fmt="none", ecolor="#222", elinewidth=1,
            capsize=2,
        )  # fmt: skip
    left.set_yticks(range(len(shown)), [escape(shorten(content, 34)) for content, _ in shown], fontsize=8)
    left.set(xlim=(0, 1.01), ylim=(len(shown) - 0.4, -0.6))
    left.set_xlabel("share of the explanations of a class that contain it (95 % interval)", fontsize=8)
    figure.legend(loc="outside lower left", fontsize=8, frameon=False, ncols=min(len(classes), 5))
    hidden = f" ({len(rows) - len(shown)} rarer ones not shown)" if len(rows) > len(shown) else ""
    left.set_title(f"What the explanations contain{hidden}", fontsize=9)
    sizes = [e.size for e in found if e.size and not e.rank]
    step = -(-max(sizes) // MAX_BINS)
    right.hist(sizes, bins=np.arange(0.5, max(sizes) + step + 0.5, step), color=GREY, rwidth=0.9)
    right.set(xlim=(0.5 - step / 2, max(sizes) + step))
    right.set_xlabel("units per explanation", fontsize=8)
    right.set_title(f"{count_nouns(len(sizes), 'explanation')}, mean size {np.mean(sizes):.1f}", fontsize=9)
    right.tick_params(axis="y", labelsize=7)
    for axis in (right.xaxis, right.yaxis):
        axis.get_major_locator().set_params(integer=True)
    for axes in (left, right):
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return saved(figure, path)


def curve(e: Explanation, ax: Any, path: str | Path | None, size: tuple[float, float]) -> Any:
    """Size against PNS of the sets that a search with `surely` met; the returned set is marked."""
    require(
        bool(e.curve),
        "Expected an explanation with a curve, which a search with `surely` keeps",
        got=f"surely={e.surely}, status={e.status!r}",
        do="Pass surely=0.9 to cf2.explain.",
    )
    check_options(None, size)
    axes = new_figure(size).subplots() if ax is None else ax
    sizes, shares = zip(*e.curve)
    axes.plot(sizes, shares, marker="o", color=OKABE_ITO[0], label="sets met by the search, on its own contexts")
    if e.pns is not None:
        value, low, high = e.pns
        error = [[value - low], [high - value]]
        label = "returned set, on fresh contexts (95 % interval)"
        axes.errorbar([e.size], [value], error, fmt="s", color=OKABE_ITO[1], capsize=3, label=label)
    if e.surely is not None:
        axes.axhline(e.surely, color="0.5", linestyle=":", label=f"requested: {e.surely:g}")
    axes.set(xlabel="size of the set", ylabel="PNS", ylim=(0, 1.05), xlim=(min(sizes) - 0.5, max(*sizes, e.size) + 0.5))
    axes.set_title(escape(describe_prediction(e)), fontsize=10)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    saved(axes.figure, path)
    return axes.figure if ax is None else ax
