"""Small charts as inline SVG: probabilities, sizes, and size against PNS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.models.outputs import output_kind
from cf2.report import environment
from cf2.report.scene import OKABE_ITO
from cf2.report.words import class_name, round_probability
from cf2.results.explanation import Explanation

ROW = 26  # height of a bar with its text
HISTOGRAM_ROW, HISTOGRAM_LEFT, HISTOGRAM_WIDTH = 86, 110, 380  # in pixels; a phone shows 364 of them


def said(
    e: Explanation, rows: Sequence[tuple[str, np.ndarray]], *, start: float = 104.0, span: float = 190.0
) -> Markup:
    """What the model says of several graphs, each a title and values [classes]: probabilities, or numbers from 0 on.

    Bars begin at `start` and are at most `span` wide.
    """
    kind, column = output_kind(e.output), e.prediction
    boxes, texts, spoken = list[tuple[Any, ...]](), list[tuple[Any, ...]](), []
    numbers = [float(values[column]) for _, values in rows if not np.isnan(values).any()]
    low, high = (0.0, 1.0) if kind.probability else (min([0.0, *numbers]), max([0.0, *numbers]))
    scale = span / ((high - low) or 1.0)
    for line, (title, values) in enumerate(rows):
        value, name, left, y = float(values[column]), class_name(e, column), start, line * ROW
        if np.isnan(values).any():  # no node is left that the model could be asked about
            bars, text = [], "no node left"
        elif not kind.probability:
            left += (min(value, 0.0) - low) * scale
            bars, text = [(abs(value), f"{value:.6g}")], f"{value:.4g}"
        else:
            shares = [(f"not {name}", 1 - value), (name, value)]
            if kind.exclusive:
                shares = [(class_name(e, number), share) for number, share in enumerate(values.tolist())]
            bars = [(share, f"{name}: {share:.3f}") for name, share in shares]
            name, value = max(shares, key=lambda share: share[1])
            text = f"{shorten(name, 13)} {round_probability(value)}"
        for number, (length, tip) in enumerate(bars):
            boxes.append((left, y + 3, scale * length, 16, OKABE_ITO[number % len(OKABE_ITO)], tip))
            left += scale * length
        texts += [("cf2-row", 0, y + 15, title), ("cf2-row", start + span + 8, y + 15, text)]
        spoken.append(f"{title}: {name} {value:.2f}" if bars and kind.probability else f"{title}: {text}")
    return _chart("cf2-bars", start + span + 136, len(rows) * ROW, "; ".join(spoken), boxes, texts)


def histogram(series: Sequence[tuple[str, Sequence[int]]]) -> Markup:
    """The distribution of sizes, one row per series, on one scale; the last bin takes all that is larger."""
    everything = [size for _, sizes in series for size in sizes]
    if not everything:
        return Markup("")
    top = int(max(1, np.ceil(np.percentile(everything, 98))))
    step = max(1, -(-(top + 1) // 40))
    bins = np.arange(0, top + 1, step)
    wide, tall, left = HISTOGRAM_WIDTH / len(bins), HISTOGRAM_ROW - 22, HISTOGRAM_LEFT
    height = len(series) * HISTOGRAM_ROW + 14
    boxes: list[tuple[Any, ...]] = []
    texts: list[tuple[Any, ...]] = []
    for line, (name, sizes) in enumerate(series):
        counts = np.bincount(np.minimum(np.asarray(sizes) // step, len(bins) - 1), minlength=len(bins))
        base = (line + 1) * HISTOGRAM_ROW - 14
        texts += [("cf2-row", 0, base - 22, shorten(name, 17)), ("cf2-row", 0, base - 6, f"mean {np.mean(sizes):.1f}")]
        for place, count in enumerate(counts.tolist()):
            high, size = tall * count / max(int(counts.max()), 1), int(bins[place])
            tip = f"{size}–{size + step - 1}: {count}" if step > 1 else f"{size}: {count}"
            colour = OKABE_ITO[line % len(OKABE_ITO)]
            boxes.append((left + place * wide, base - high, max(wide - 1.5, 0.8), high, colour, tip))
    for place in range(0, len(bins), max(1, len(bins) // 8)):
        texts.append(("cf2-small", f"{left + (place + 0.5) * wide:.1f}", height - 12, int(bins[place])))
    axes = [f"M{left} {(line + 1) * HISTOGRAM_ROW - 14}H{left + HISTOGRAM_WIDTH}" for line in range(len(series))]
    label = f"Distribution of explanation sizes: {', '.join(name for name, _ in series)}"
    return _chart("cf2-histogram", left + HISTOGRAM_WIDTH + 10, height, label, boxes, texts, axes)


def curve(e: Explanation, *, wide: float = 260.0, tall: float = 90.0) -> Markup:
    """Size against PNS of the sets that a search for a sure one came by; nothing without two of them."""
    if len(e.curve) < 2:
        return Markup("")
    left, low, high = 34.0, e.curve[0][0], e.curve[-1][0]
    points = [(left + wide * (size - low) / (high - low), 6 + tall * (1 - share)) for size, share in e.curve]
    boxes: list[tuple[Any, ...]] = []
    for (x, y), (size, share) in zip(points, e.curve):
        colour = OKABE_ITO[1 if size == e.size else 0]
        boxes.append((x - 3, y - 3, 6, 6, colour, f"size {size}: PNS {share:.2f}"))
    texts: list[tuple[Any, ...]] = [("cf2-small", 0, 10, "1.0"), ("cf2-small", 0, 6 + tall, "0.0")]
    texts += [("cf2-small", f"{left + wide * at:.1f}", tall + 22, size) for at, size in ((0, low), (1, high))]
    texts.append(("cf2-small", left + wide / 2 - 40, tall + 22, "size against PNS"))
    axes = ["M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), f"M{left} 6V{6 + tall}H{left + wide}"]
    if e.surely is not None:
        axes.append(f"M{left} {6 + tall * (1 - e.surely):.1f}H{left + wide}")
    label = "PNS by size: " + ", ".join(f"{size}: {share:.2f}" for size, share in e.curve)
    return _chart("cf2-bars", left + wide + 20, tall + 28, label, boxes, texts, axes)


def shorten(text: str, most: int) -> str:
    """At most `most` characters, with an ellipsis where some are gone."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _chart(
    kind: str,
    width: float,
    height: float,
    label: str,
    boxes: Sequence[tuple[Any, ...]],
    texts: Sequence[tuple[Any, ...]],
    axes: Sequence[str] = (),
) -> Markup:
    """An SVG of boxes (x, y, width, height, colour, tip), texts (class, x, y, text) and axes as paths."""
    parts = {"boxes": boxes, "texts": texts, "axes": axes}
    template = environment().get_template("chart.svg")
    return Markup(template.render(kind=kind, width=width, height=height, label=label, **parts))
