"""The page of benchmarks: every figure with what it was measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.curves import Curve
from cf2.runs.store import versions

INTRO = """# Benchmarks

Made by `cf2 bench --full` on {date}, on {cores} cores ({machine}), with {versions}.
Times are CPU seconds of one thread, so that other programs on the machine do not count; only the scaling over
workers uses the wall clock, and needs idle cores to mean anything. Both sides of a ratio are measured in the
same run, with denormal floats flushed for both. A rival's loop is measured on a few instances and given per
explanation.
"""


def write_page(out: Path, figures: Mapping[str, float], curves: Sequence[Curve], left_out: Sequence[str] = ()) -> Path:
    """Write `benchmarks.md` and its plots under `out`; what was not measured is named."""
    (out / "images").mkdir(parents=True, exist_ok=True)
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    parts = [
        INTRO.format(
            date=f"{datetime.now(UTC):%Y-%m-%d}", cores=os.cpu_count(), machine=platform.machine(), versions=named
        ),
        *([f"Not measured in this run: {', '.join(left_out)}.\n"] if left_out else []),
        "## Ratios\n\nHow many times faster than the rival, unless the name says otherwise.\n",
        _table(("figure", "value"), [(f"`{name}`", _number(value)) for name, value in figures.items()]),
    ]
    for curve in curves:
        plot(curve, out / "images" / f"bench-{curve.name}.svg")
        rows = [tuple(_number(value) for value in row) for row in curve.rows]
        parts += [f"## {curve.title}\n\n{curve.note}\n", _table(curve.columns, rows)]
        parts.append(f"![{curve.title}](images/bench-{curve.name}.svg)\n")
    path = out / "benchmarks.md"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def plot(curve: Curve, path: Path) -> None:
    """One small panel a column, on logarithmic axes; the same figures give the same file."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    with matplotlib.rc_context({"svg.hashsalt": "cf2", "font.size": 8}):
        figure = Figure(figsize=(2.6 * (len(curve.columns) - 1), 2.2), layout="constrained")
        panels = figure.subplots(1, len(curve.columns) - 1, squeeze=False)[0]
        x = [row[0] for row in curve.rows]
        for number, panel in enumerate(panels, start=1):
            y = [row[number] for row in curve.rows]
            panel.plot(x, y, marker="o", color="#0072B2")
            panel.set_xlabel(curve.columns[0])
            panel.set_title(curve.columns[number], fontsize=8)
            panel.set_xscale("log")
            panel.set_xticks(x, labels=[_short(value) for value in x])
            panel.set_xticks([], minor=True)
            if min(y) > 0:
                panel.set_yscale("log")
                middle, half = (min(y) * max(y)) ** 0.5, max((max(y) / min(y)) ** 0.5 * 1.2, 10**0.5)
                panel.set_ylim(middle / half, middle * half)  # a decade at least, so that noise looks like noise
                panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                panel.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,g}"))
                panel.yaxis.set_minor_locator(NullLocator())
            panel.grid(True, which="major", alpha=0.3)
        figure.savefig(path, metadata={"Date": None})


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _short(value: float) -> str:
    """A number on an axis: 67, 1014, 1e5."""
    return f"{round(value)}" if value < 10_000 else f"{value:.0e}".replace("e+0", "e")


def _number(value: float) -> str:
    """Three figures that count, and whole numbers with their thousands apart."""
    if value == int(value) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.3g}"
