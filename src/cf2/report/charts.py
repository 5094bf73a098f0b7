"""Small charts as inline SVG: probabilities, distributions of sizes, and numbers with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from cf2.models.outputs import output_kind
from cf2.report.scene import OKABE_ITO
from cf2.report.words import round_probability
from cf2.results.explanation import Explanation

STYLE = """
.cf2-bars { width: 100%; max-width: 420px; height: auto; display: block; }
.cf2-histogram { width: 100%; max-width: 700px; height: auto; display: block; }
.cf2-row { font: 12px system-ui, sans-serif; fill: currentColor; }
.cf2-axis { stroke: currentColor; stroke-opacity: .5; fill: none; }
.cf2-range { stroke: currentColor; stroke-width: 1.5; fill: none; }
"""


def bars(
    rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], *, start: float = 104.0, span: float = 190.0
) -> Markup:
    """Class probabilities as one bar per row, `span` wide; the most probable class is written beside it."""
    parts, height = [], 26
    for line, (title, values) in enumerate(rows):
        y, left = line * height, start
        parts.append(Markup('<text class="cf2-row" x="0" y="{}">{}</text>').format(y + 15, title))
        for number, value in enumerate(values):
            colour = OKABE_ITO[number % len(OKABE_ITO)]
            parts.append(_box(left, y + 3, span * value, 16, colour, f"{names[number]}: {value:.3f}"))
            left += span * value
        best = int(np.argmax(values))
        text = f"{shorten(names[best], 13)} {round_probability(values[best])}"
        parts.append(Markup('<text class="cf2-row" x="{}" y="{}">{}</text>').format(start + span + 8, y + 15, text))
    label = "; ".join(f"{title}: {names[int(np.argmax(v))]} {float(np.max(v)):.2f}" for title, v in rows)
    return Markup('<svg class="cf2-bars" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        start + span + 136, len(rows) * height, label, Markup("").join(parts)
    )


def said(
    e: Explanation,
    rows: Sequence[tuple[str, np.ndarray]],
    names: Sequence[str] | None,
    *,
    start: float = 104.0,
    span: float = 190.0,
) -> Markup:
    """What the model says of several graphs: probabilities of classes or of one label, or numbers from 0 on."""
    kind = output_kind(e.output)
    if kind.exclusive:
        named = [kind.column_name(number, names) for number in range(len(e.probabilities))]
        return bars([(title, values.tolist()) for title, values in rows], named, start=start, span=span)
    own = [(title, float(values[e.prediction])) for title, values in rows]
    if kind.probability:
        label = kind.column_name(e.prediction, names)
        return bars([(title, [1 - p, p]) for title, p in own], [f"not {label}", label], start=start, span=span)
    return _numbers(own, start, span)


def _numbers(rows: Sequence[tuple[str, float]], start: float, span: float) -> Markup:
    """Numbers as bars from 0, on one scale."""
    low, high = (pick([0.0, *(value for _, value in rows)]) for pick in (min, max))
    scale = span / ((high - low) or 1.0)
    parts, height = [], 26
    for line, (title, value) in enumerate(rows):
        y, left = line * height, start + (min(value, 0.0) - low) * scale
        put = Markup('<text class="cf2-row" x="{}" y="{}">{}</text>')
        parts.append(put.format(0, y + 15, title) + put.format(start + span + 8, y + 15, f"{value:.4g}"))
        parts.append(_box(left, y + 3, abs(value) * scale, 16, OKABE_ITO[0], f"{value:.6g}"))
    label = "; ".join(f"{title}: {value:.4g}" for title, value in rows)
    return Markup('<svg class="cf2-bars" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        start + span + 136, len(rows) * height, label, Markup("").join(parts)
    )


def histogram(series: Sequence[tuple[str, Sequence[int]]]) -> Markup:
    """The distribution of sizes, one row per series, on one scale; the last bin takes all that is larger."""
    everything = [size for _, sizes in series for size in sizes]
    if not everything:
        return Markup("")
    top = int(max(1, np.ceil(np.percentile(everything, 98))))
    step = max(1, -(-(top + 1) // 40))
    bins = np.arange(0, top + step + 1, step)
    wide, tall, left = 560.0 / (len(bins) - 1), 64, 130
    parts = []
    for line, (name, sizes) in enumerate(series):
        counts = np.bincount(np.minimum(np.asarray(sizes) // step, len(bins) - 2), minlength=len(bins) - 1)
        base = (line + 1) * (tall + 22) - 14
        colour = OKABE_ITO[line % len(OKABE_ITO)]
        put = Markup('<text class="cf2-row" x="0" y="{}">{}</text>')
        parts.append(put.format(base - 22, name) + put.format(base - 6, f"mean {np.mean(sizes):.1f}"))
        for place, count in enumerate(counts.tolist()):
            high = tall * count / max(int(counts.max()), 1)
            tip = f"{bins[place]}–{bins[place + 1] - 1}: {count}" if step > 1 else f"{bins[place]}: {count}"
            parts.append(_box(left + place * wide, base - high, max(wide - 1.5, 0.8), high, colour, tip))
        parts.append(Markup('<path class="cf2-axis" d="M{} {}H{}"/>').format(left, base, left + 560))
    height = len(series) * (tall + 22) + 14
    for place in range(0, len(bins) - 1, max(1, (len(bins) - 1) // 8)):
        x = f"{left + (place + 0.5) * wide:.1f}"
        parts.append(Markup('<text class="cf2-small" x="{}" y="{}">{}</text>').format(x, height - 12, int(bins[place])))
    return Markup('<svg class="cf2-histogram" viewBox="0 0 700 {}" role="img" aria-label="{}">{}</svg>').format(
        height, f"Distribution of explanation sizes: {', '.join(name for name, _ in series)}", Markup("").join(parts)
    )


def whisker(low: float, value: float, high: float, top: float = 1.0) -> Markup:
    """A bar from 0 to `value` on a scale that ends at `top`, with the interval drawn over it."""
    scale = 100.0 / max(top, 1e-9)
    a, b, c = (f"{scale * max(0.0, v):.1f}" for v in (low, value, high))
    inner = Markup('<rect x="0" y="3" width="{}" height="8" fill="{}" fill-opacity=".55"/>').format(b, OKABE_ITO[4])
    inner += Markup('<path class="cf2-range" d="M{0} 7H{1}M{0} 4V10M{1} 4V10"/>').format(a, c)
    return Markup(
        '<svg class="cf2-whisker" viewBox="-1 0 102 14" width="102" height="14" aria-hidden="true">{}</svg>'
    ).format(inner)


def shorten(text: str, most: int) -> str:
    """At most `most` characters, with an ellipsis where some are gone."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _box(x: float, y: float, width: float, height: float, colour: str, tip: str) -> Markup:
    made = Markup('<rect x="{}" y="{}" width="{}" height="{}" fill="{}"><title>{}</title></rect>')
    return made.format(f"{x:.1f}", f"{y:.1f}", f"{width:.1f}", f"{height:.1f}", colour, tip)
