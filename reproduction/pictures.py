"""The paper's figures: the influence of α, and cases side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cf2.methods import registry
from cf2.report.pictures import draw
from cf2.report.scene import scene
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from reproduction import published as paper
from reproduction.cells import BaseSeed, Reproduction
from reproduction.published import Column
from reproduction.rows import over_seeds
from reproduction.tables import collapsed

LEGIBLE = 60  # edges of a receptive field that can be drawn whole
LINES = (("fns", "F_NS", "#D55E00"), ("pn", "PN", "#0072B2"), ("ps", "PS", "#E69F00"), ("f1", "F1", "#009E73"))


def draw_sizes(rows: Sequence[dict[str, Any]], out: Path) -> list[str]:
    """F_NS against the mean size, a panel per column and a mark per method, with the published CF² as a star."""
    shown = [
        row for row in rows if row.get("table") == "causal" and row["method"] in paper.MARKS and not collapsed(row)
    ]
    names = list(dict.fromkeys(row["dataset"] for row in shown))
    if not names:
        return []
    wide = min(3, len(names))
    figure = _figure((3.6 * wide, 3.1 * -(-len(names) // wide)))
    panels = figure.subplots(-(-len(names) // wide), wide, squeeze=False).flatten()
    for axes, name in zip(panels, names):
        for row in (row for row in shown if row["dataset"] == name):
            colour, mark = paper.MARKS[row["method"]]
            low, high = (row.get("interval") or {}).get("fns", (row["fns"], row["fns"]))
            axes.plot([row["size"]] * 2, [100 * low, 100 * high], color=colour, lw=1, alpha=0.6)
            axes.plot(row["size"], 100 * row["fns"], mark, color=colour, mec="black", mew=0.5, label=row["method"])
        beside = paper.CAUSAL.get((name, "cf2"))
        if beside:
            star = {"color": "white", "mec": "black", "ms": 11, "label": "CF², published"}
            axes.plot(beside["size"], 100 * beside["fns"], "*", **star)
        axes.set(title=name, xlabel="size", ylabel="F_NS %", ylim=(-4, 104))
        axes.grid(alpha=0.25)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    handles = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return _write(figure, out, "sizes")


def alpha_rows(cells: Reproduction, columns: Sequence[Column], seeds: Sequence[BaseSeed]) -> list[dict[str, Any]]:
    """The paper's procedure for α from 0 to 1."""
    rows = []
    for column in columns:
        for alpha in paper.ALPHAS:
            values = []
            for seed in seeds:
                folder = "" if alpha == 0.6 else f"alpha/{column.name}-{alpha:.1f}"
                changes = {} if alpha == 0.6 else {"alpha": alpha}
                explanations = cells.explanations(column, "cf2-relaxed", seed, folder=folder, **changes)
                source = cells.source(column.dataset, seed)
                if explanations is None or source is None:
                    continue
                truth = metrics.truth(explanations, source.true_edges([e.key for e in explanations]))
                measured = metrics.summary(explanations) | truth
                values.append({name: measured[name] for name in ("n", "pn", "ps", "fns", "size", "f1", "acc")})
            if values:
                rows.append({"figure": "alpha", "dataset": column.name, "alpha": alpha, **over_seeds(values)})
    return rows


def draw_alpha(rows: Sequence[dict[str, Any]], out: Path) -> list[str]:
    """Metrics over α, one panel a data set, as PNG and SVG."""
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    if not names:
        return []
    figure = _figure((4.2 * len(names), 3.3))
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names):
        curve = [row for row in rows if row["dataset"] == name]
        for field, label, colour in LINES:
            axes.plot(
                [r["alpha"] for r in curve], [100 * r[field] for r in curve], "o-", ms=3, color=colour, label=label
            )
        axes.set(title=name, xlabel="α (0: counterfactual only, 1: factual only)", ylabel="%", ylim=(-3, 103))
        axes.grid(alpha=0.25)
    figure.axes[0].legend(frameon=False, fontsize=8, ncols=2)
    return _write(figure, out, "alpha")


def draw_cases(
    cells: Reproduction, columns: Sequence[Column], seed: BaseSeed
) -> tuple[list[dict[str, Any]], list[str]]:
    """One instance a data set, explained by three methods, beside the truth."""
    chosen = []
    for column in columns:
        cell = {method: cells.explanations(column, method, seed) for method in paper.CASES}
        explained = {method: explanations for method, explanations in cell.items() if explanations is not None}
        if len(explained) == len(paper.CASES):
            position = _legible(explained["cf2"])
            cases = {method: explanations[position] for method, explanations in explained.items()}
            chosen.append((column, explained["cf2"].context, cases))
    if not chosen:
        return [], []
    figure = _figure((3.1 * len(paper.CASES), 3.1 * len(chosen)))
    grid = figure.subplots(len(chosen), len(paper.CASES), squeeze=False)
    rows = []
    for line, (column, context, cases) in zip(grid, chosen):
        for axes, (method, e) in zip(line, cases.items()):
            _panel(axes, e, context, list(cases.values()), f"{column.name} {e.key}: {registry.get(method).title}")
            rows.append(_case_row(column, method, e))
    return rows, _write(figure, cells.out / "figures", "cases")


def _case_row(column: Column, method: str, e: Explanation) -> dict[str, Any]:
    row = {"figure": "cases", "dataset": column.name, "key": e.key, "method": method, "size": e.size}
    return row | {"sufficient": e.sufficient, "necessary": e.necessary, "edges": e.edges.tolist()}


def _legible(explanations: Explanations) -> int:
    """The first instance that can be drawn whole, else the smallest; no method's result has a say."""
    sizes = [len(e.units.where("edges")) for e in explanations]
    return next((i for i, size in enumerate(sizes) if 12 <= size <= LEGIBLE), sizes.index(min(sizes)))


def _panel(axes: Any, e: Explanation, context: Any, others: Sequence[Explanation], title: str) -> None:
    draw(axes, scene(replace(e, context=context), others))
    axes.set_title(title, fontsize=8)
    verdicts = [f"{'' if e.sufficient else 'not '}sufficient", f"{'' if e.necessary else 'not '}necessary"]
    says = ", ".join([f"{e.size} edge{'' if e.size == 1 else 's'}", *verdicts])
    axes.text(0.5, -0.02, says, transform=axes.transAxes, ha="center", va="top", fontsize=7)


def _figure(size: tuple[float, float]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _write(figure: Any, out: Path, name: str) -> list[str]:
    import matplotlib

    out.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": name}):  # the same figure gives the same bytes
        figure.savefig(out / f"{name}.png", dpi=150, metadata={"Software": None})
        figure.savefig(out / f"{name}.svg", metadata={"Date": None})
    return [f"figures/{name}.png", f"figures/{name}.svg"]
