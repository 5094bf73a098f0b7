"""Pictures of a scene: inline SVG, coloured by the page's own light or dark style, and matplotlib figures."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.errors import CF2Error, reading, require, require_path, shown, unknown_name
from cf2.models.outputs import output_kind
from cf2.report import environment
from cf2.report.charts import shorten
from cf2.report.scene import EXPLANATION, LOOKS, MARKED, OKABE_ITO, TARGET, Scene, before_and_after, scene
from cf2.report.words import class_name, describe_prediction, describe_said, describe_unit, said_rows, verdict_sentences
from cf2.results.explanation import Explanation
from cf2.results.names import typed_id
from cf2.units.edits import ADD

WIDTH, HEIGHT, MARGIN = 420, 320, 22  # of an SVG, in pixels
WORD_HEIGHT = 34  # room for a word below a picture
MAX_EDGE = 56.0  # pixels of an edge of a small graph
MAX_ALL_NAMED = 40  # of a picture that can be clicked: nodes that all have their ids
MAX_BARS = 24  # units of a function that are drawn
MAX_INCHES = 200  # a picture of more than 2¹⁶ points is not drawn
STYLE = Markup(environment().get_template("picture.css").render(looks=LOOKS, width=WIDTH))  # of charts as well


def picture(scene: Scene, title: str, *, gone: np.ndarray | None = None) -> Markup:
    """The scene as one SVG element that says to a screen reader what it shows.

    An edited molecule is drawn before and after, side by side. With `gone` [units, bool], which says what is taken
    away (or, of what would be added, made), edges and nodes can be clicked: they carry their unit in `data-unit`.
    """
    height = _height(scene)
    if gone is not None:  # what is taken away is drawn by `_clickable`
        scene = replace(scene, chosen=scene.chosen & ~((scene.units >= 0) & np.append(gone, False)[scene.units]))
    shown = before_and_after(scene) if scene.molecule else ()
    drawn = [_molecule_part(part, height) for part in shown]
    placed = [part for part in drawn if part is not None]
    if not placed or len(placed) < len(drawn):
        placed = [_graph_part(scene, height, gone is not None)]
    parts = [part for part, _ in placed]
    if gone is not None:
        parts[0] |= _clickable(scene, placed[0][1], gone)
    height += WORD_HEIGHT if len(parts) > 1 else 0
    values = {"parts": parts, "width": WIDTH, "height": height, "title": title, "explanation": EXPLANATION}
    return Markup(environment().get_template("picture.svg").render(**values))


def _height(scene: Scene) -> int:
    """As high as the graph is when it fills the width, within bounds."""
    if not len(scene.points):
        return 110
    span = np.maximum(np.ptp(scene.points, axis=0), 1e-9)
    scale = min((WIDTH - 2 * MARGIN) / span[0], MAX_EDGE)
    return int(np.clip(span[1] * scale + 2 * MARGIN + 16, 110, HEIGHT))


def fit(points: np.ndarray, width: float, height: float, margin: float) -> np.ndarray:
    """Points scaled by one factor, at most so that an edge is `MAX_EDGE` long, and centred in a box."""
    if not len(points):
        return points
    low, high = points.min(0), points.max(0)
    span = np.maximum(high - low, 1e-9)
    scale = min((width - 2 * margin) / span[0], (height - 2 * margin) / span[1], MAX_EDGE)
    return np.asarray((points - (low + high) / 2) * scale + np.array([width, height]) / 2)


def _clickable(scene: Scene, at: np.ndarray, gone: np.ndarray) -> dict[str, Any]:
    """The edges and nodes that can be clicked; in a molecule an edge ends where the letters of its atoms begin."""
    margin = 9.0 if scene.labels else 0.0
    units = np.concatenate([scene.units, scene.added_units])
    lines = []
    for (a, b), unit in zip(np.concatenate([scene.edges, scene.added]).tolist(), units.tolist()):
        ends, way = at[[a, b]], at[b] - at[a]
        if unit >= 0 and np.isfinite(ends).all():
            short = way * min(margin / max(float(np.hypot(*way)), 1e-9), 0.3)
            path = _path(np.stack([ends[0] + short, ends[1] - short]))
            kind = "cf2-new" if unit in scene.added_units else ""
            lines.append((unit, path, f"{kind}{' cf2-gone' if gone[unit] else ''}", scene.pair_text(a, b)))
    dots = []
    for n in np.flatnonzero(np.isfinite(at).all(1)).tolist():
        unit = int(scene.node_units[n])
        dots.append((int(scene.nodes[n]), *_rounded(at[n]), scene.texts[n], unit, unit >= 0 and bool(gone[unit])))
    return {"lines": lines, "dots": dots}


def _graph_part(scene: Scene, height: int, live: bool) -> tuple[dict[str, Any], np.ndarray]:
    """What the template draws of a graph, and where each node is [n, 2]."""
    at = fit(scene.points * [1, -1], WIDTH, height, MARGIN)
    count = len(scene.nodes)
    radius = 7.0 if count <= 25 else 5.0 if count <= 60 else 3.6
    paths = [(f"cf2-{name}", _path(at[edges])) for name, edges in scene.lines]
    if scene.directed:
        paths += [(f"cf2-{name}", _arrowheads(at[edges], radius)) for name, edges in scene.lines[1:]]
    dots = [node for node in range(count) if not (scene.labelled and scene.labels[node])]
    few = count <= 25 and scene.labelled and max(map(len, scene.labels)) <= 2
    style = "cf2-text cf2-larger" if few else "cf2-text"
    texts: list[tuple[Any, ...]] = [
        (style, *_rounded(at[n]), scene.labels[n][:6]) for n in range(count) if scene.labelled
    ]
    reach = np.full((count, 1), radius + 8)
    reach[[*scene.targets, *scene.changed]] += 5  # outside of the ring
    beside = at + scene.outward * [1, -1] * reach
    named = range(count) if live and count <= MAX_ALL_NAMED and not scene.labelled else scene.named
    texts += [("cf2-small", *_rounded(beside[n]), scene.texts[n]) for n in named]
    texts += [("cf2-small", *_rounded(at[n] + [0, radius + 15]), text[:40]) for n, text in scene.changed.items()]
    keys = [] if live else scene.legend  # a live picture has its keys below it
    legend = [(colour, 10 + 13 * line, name) for line, (colour, name) in enumerate(keys)]
    texts += [("cf2-small cf2-legend", 16, y, name) for _, y, name in legend]
    part = {
        "paths": [(name, path) for name, path in paths if path],
        "drawing": "",
        "nodes": [(*_rounded(at[n]), radius, scene.fill(n), scene.border(n)) for n in dots]
        + [(8, y, 4, colour, 0) for colour, y, _ in legend],
        "rings": [(f"cf2-{name}", *_rounded(at[n]), radius + 4 * place) for name, n, place in scene.rings],
        "crosses": _cross_path(scene.crosses(at), 4.5),
        "texts": texts,
    }
    return part, at


def _molecule_part(scene: Scene, height: int) -> tuple[dict[str, Any], np.ndarray] | None:
    """The same of a molecule, None where it is none."""
    from cf2.report.molecules import drawing

    drawn = drawing(scene, WIDTH, height)
    if drawn is None:
        return None
    text, at = drawn
    lines = [(look, _path(at[edges])) for look, edges in _behind(scene)]
    words = scene.changed.items()
    part = {
        "paths": [(f"cf2-molecule cf2-{name}", path) for name, path in lines if path],
        "drawing": Markup(text),
        "nodes": [],
        "rings": [],
        "crosses": _cross_path(scene.crosses(at), 6.0),
        "texts": [("cf2-small cf2-larger", *_rounded(at[atom] + [0, 20]), change[:40]) for atom, change in words],
    }
    return part, at


def _behind(scene: Scene) -> list[tuple[str, np.ndarray]]:
    """The lines behind a molecule, whose bonds are drawn already; crosses say what is removed."""
    behind = {"true": "bond-true", "chosen": "bond", ADD.past: ADD.past}
    return [(behind[name], edges) for name, edges in scene.lines if name in behind]


def _path(ends: np.ndarray) -> str:
    """Lines between ends [·, 2, 2]."""
    return "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in ends.reshape(-1, 4).tolist())


def _cross_path(points: np.ndarray, reach: float) -> str:
    corners = np.array([[[-1, -1], [1, 1]], [[-1, 1], [1, -1]]]) * reach
    return _path(points[:, None, None] + corners)


def _arrowheads(ends: np.ndarray, radius: float) -> str:
    """The tips of lines between ends [·, 2, 2], at the border of their second nodes."""
    tail, head = ends[:, 0], ends[:, 1]
    way = (head - tail) / np.maximum(np.hypot(*(head - tail).T)[:, None], 1e-9)
    tip, side = head - way * (radius + 1), way[:, ::-1] * [-1, 1]
    left, right = tip - way * 7 + side * 3.5, tip - way * 7 - side * 3.5
    return _path(np.stack([left, tip, tip, right], 1))


def _rounded(point: np.ndarray) -> tuple[str, str]:
    return f"{point[0]:.1f}", f"{point[1]:.1f}"


def plot(
    e: Explanation,
    *,
    ax: Any = None,
    layout: Any = None,
    path: str | Path | None = None,
    context: Mapping[str, Any] | None = None,
    words: bool = True,
    probabilities: bool = True,
    size: tuple[float, float] = (9.0, 4.8),
) -> Any:
    """A figure of one explanation, or the axes it is drawn on, as `Explanation.plot` describes it.

    The figure is not registered with pyplot, so nothing needs to be closed.
    """
    check_options(context, size)
    e = e if context is None else replace(e, context={**e.context, **context})  # claims keep their constraints
    drawn = _with_layout(e, _scene(e), layout)

    def draw_on(axes: Any) -> None:
        if e.task == "input":  # no graph
            _draw_units(axes, e)
        else:
            _legend(axes, drawn, "bond" if draw(axes, drawn) else "chosen")

    if ax is not None:
        require(hasattr(ax, "add_collection"), "Expected `ax` to be matplotlib axes", got=shown(ax, 80))
        draw_on(ax)
        saved(ax.figure, path)
        return ax
    figure = new_figure(size)
    if probabilities:
        left, right = figure.subplots(1, 2, width_ratios=(2.3, 1))
        _probabilities(right, e)
    else:
        left = figure.subplots()
    draw_on(left)
    if words:
        figure.suptitle(escape(describe_prediction(e)), fontsize=11, fontweight="bold")
        lines = [f"{s.head}: {s.text}" for s in verdict_sentences(e)]
        lines += [drawn.caption] if drawn.caption else []
        wide = int(size[0] * 13)
        text = "\n".join(part for line in lines for part in textwrap.wrap(line, wide))
        figure.supxlabel(escape(text), fontsize=9, x=0.01, ha="left")
    return saved(figure, path)


def new_figure(size: tuple[float, float]) -> Any:
    """An empty figure that a notebook shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A matplotlib figure that a notebook shows, whatever its backend."""

        def _repr_png_(self) -> bytes:
            png = io.BytesIO()
            self.savefig(png, format="png", dpi=100)
            return png.getvalue()

    figure = Picture(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def saved(figure: Any, path: Any) -> Any:
    """The figure, written to the file `path` if there is one."""
    if path is None:
        return figure
    path, known = require_path(path, "a picture to write"), figure.canvas.get_supported_filetypes()
    kind = path.suffix.lstrip(".").lower()
    if kind not in known:
        raise unknown_name("the ending of `path`", kind, known)
    expected = "Expected `path` in a directory that is there"
    require(path.parent.is_dir(), expected, got=shown(str(path), 80), do="Make the directory.")
    figure.savefig(path)
    return figure


def _draw_units(axes: Any, e: Explanation) -> None:
    """The units of a function as bars, as long as their scores; chosen ones are drawn in the explanation's colour."""
    best = np.argsort(-(e.scores + 1e9 * e.selected), kind="stable")[:MAX_BARS]
    rows = np.sort(best)[::-1].tolist()  # the first unit is on top
    axes.barh(range(len(rows)), e.scores[rows], color=[EXPLANATION if e.selected[row] else "#cccccc" for row in rows])
    axes.set_yticks(range(len(rows)), [escape(shorten(describe_unit(e, row), 30)) for row in rows], fontsize=8)
    for label, row in zip(axes.get_yticklabels(), rows):
        label.set_fontweight("bold" if e.selected[row] else "normal")
    axes.set_xlabel(f"score ({len(rows)} of {e.num_units:,} units)", fontsize=8)
    axes.barh(0, 0, 0, color=EXPLANATION, label="explanation")
    axes.legend(loc="best", frameon=False, fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _with_layout(e: Explanation, drawn: Scene, layout: Any) -> Scene:
    """The scene with the nodes where the user wants them."""
    if layout is None:
        return drawn
    points = layout(e.to_networkx()) if callable(layout) else layout
    expected = "Expected `layout` to hold a point (x, y) for every node that is drawn, by its id"
    require(isinstance(points, Mapping), expected, got=shown(points, 80))
    nodes = drawn.nodes.tolist()
    keys = nodes if e.types is None else [typed_id(e.types, node) for node in nodes]
    missing = next((key for key in keys if key not in points), None)
    require(missing is None, expected, got=f"none for {missing}")
    with reading(points, expected):
        places = np.array([[float(part) for part in points[key]] for key in keys]).reshape(len(keys), 2)
    return replace(drawn, points=places, molecule=False)


def check_options(context: Any, size: Any) -> None:
    numbers = isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(s, int | float) for s in size)
    require(
        numbers and all(1 <= side <= MAX_INCHES for side in size),
        f"Expected `size` to be a width and a height in inches, from 1 to {MAX_INCHES}",
        got=shown(size, 80),
    )
    mapping = context is None or isinstance(context, Mapping)
    require(mapping, "Expected `context` to be a mapping", got=shown(context, 80))
    names = (context or {}).get("class_names") or ()
    good = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    require(good, "Expected `class_names` in `context` to be a list of names", got=shown(names, 80))


def _scene(e: Explanation) -> Scene:
    try:
        return scene(e)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        got = f"{type(error).__name__}: {error}"
        expected = "Expected `context` to hold the true edges as pairs by key in `truth`, and graphs by key in `graphs`"
        raise CF2Error(expected, got=got) from error


def draw(axes: Any, shown: Scene) -> bool:
    """Draw a scene on matplotlib axes; returns whether it is drawn as a molecule."""
    axes.set_axis_off()
    if shown.molecule and _draw_molecule(axes, shown):
        return True
    axes.set_aspect("equal", adjustable="datalim")  # also the only node, or nodes in a line, have room around them
    axes.margins(0.08)
    points, count = shown.points, len(shown.nodes)
    area = 130 if count <= 25 else 60 if count <= 60 else 26
    _draw_lines(axes, shown.lines, points)
    for name, edges in shown.lines[1:] if shown.directed else ():
        look = {"color": LOOKS[name].colour, "alpha": LOOKS[name].opacity, "shrinkB": 5, "linewidth": 0.8}
        for a, b in edges.tolist():
            axes.annotate("", points[b], points[a], arrowprops={"arrowstyle": "-|>", **look}, zorder=4)
    fills, borders = [shown.fill(n) for n in range(count)], [shown.border(n) for n in range(count)]
    axes.scatter(*points.T, s=area, c=fills, edgecolors=EXPLANATION, linewidths=borders, zorder=5)
    _draw_marks(axes, shown, points, area)
    for node in range(count) if shown.labelled else ():
        _write(axes, points[node], shown.labels[node][:6], (0, 0))
    for node in shown.named:
        _write(axes, points[node], shown.texts[node], (17 if node in shown.targets else 13) * shown.outward[node])
    return False


def _draw_lines(axes: Any, lines: Any, at: np.ndarray, scale: float = 1.0) -> None:
    """Edges [·, 2] of each look, of nodes at [n, 2]."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Lines

    for name, edges in lines:
        look = LOOKS[name]
        dash = "-" if look.dash is None else (0, tuple(part / look.width for part in look.dash))
        style: dict[str, Any] = {"linewidth": scale * look.width, "alpha": look.opacity, "linestyle": dash}
        style["capstyle"] = "round" if look.dash is None else "butt"
        # All edges are one path, so that what is half transparent is no darker where they meet.
        path = Lines(at[edges].reshape(-1, 2), [Lines.MOVETO, Lines.LINETO] * len(edges))
        axes.add_patch(PathPatch(path, edgecolor=look.colour, fill=False, zorder=3, **style))


def _draw_marks(axes: Any, shown: Scene, at: np.ndarray, area: float) -> None:
    """Crosses on what is taken away, rings around nodes, and what becomes of these, with nodes at [n, 2]."""
    crosses = shown.crosses(at)
    axes.scatter(*crosses.T, s=52, marker="x", c=EXPLANATION, linewidths=2.2, zorder=7)
    for name, node, place in shown.rings:
        look = LOOKS[name]
        ring = {"edgecolors": look.colour, "linewidths": look.width, "linestyles": "--" if look.dash else "-"}
        axes.scatter(*at[node], s=area * (1.2 + 2 * place), facecolors="none", zorder=6, **ring)
    for node, text in shown.changed.items():
        _write(axes, at[node], text[:40], (0, -16))


def _write(axes: Any, point: np.ndarray, text: str, offset: Any) -> None:
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5, "zorder": 8, "color": "#111"}
    style |= {"path_effects": halo()} if any(offset) else {}
    axes.annotate(escape(text), point, xytext=tuple(offset), textcoords="offset points", **style)


def halo() -> list[Any]:
    """A white border around text, which is then readable on lines."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]


def _draw_molecule(axes: Any, shown: Scene) -> bool:
    """Draw a molecule, an edited one before and after; returns whether it is one."""
    from cf2.report.molecules import image

    parts = before_and_after(shown)
    images = [placed for part in parts if (placed := image(part)) is not None]
    if len(images) < len(parts):
        return False
    axes.imshow(np.concatenate([pixels for pixels, _ in images], 1), zorder=4)
    width = images[0][0].shape[1]
    for place, (part, (_, at)) in enumerate(zip(parts, images)):
        at = at + np.array([width * place, 0])
        _draw_lines(axes, _behind(part), at, scale=1 / len(parts))
        _draw_marks(axes, replace(part, targets=()), at, 80)
        if shown.has_edits:
            axes.text(width * (place + 0.5), 0, ("before", "after")[place], ha="center", va="bottom", fontsize=9)
    return True


def _legend(axes: Any, shown: Scene, explanation: str) -> None:
    from matplotlib.lines import Line2D

    def line(name: str, label: str, **more: Any) -> Any:
        look = LOOKS[name]
        dash = "--" if look.dash else "-"
        style: dict[str, Any] = {"color": look.colour, "linewidth": look.width, "alpha": look.opacity}
        return Line2D([], [], label=label, linestyle=dash, **style, **more)

    def dot(label: str, colour: str, border: str | None = None) -> Any:
        more: dict[str, Any] = {"markerfacecolor": colour, "markeredgecolor": border or colour, "markersize": 9}
        return Line2D([], [], marker="o", linestyle="", label=label, **more)

    edits = shown.edit_kinds
    lines = [edit for edit in edits if edit.mark != "ring"]
    keys = [line(edit.past, edit.past, marker="x" if edit.mark == "cross" else None) for edit in lines]
    if shown.inside.any() and not shown.edited:
        keys.append(line(explanation, "explanation"))
    keys += [line("true", "known truth")] if shown.true.any() else []
    keys += [dot("explained node", "none", TARGET)] if shown.targets else []
    keys += [dot(name, colour) for colour, name in shown.legend]
    keys += [dot(edit.past, "none", edit.colour) for edit in edits if edit.mark == "ring"]
    keys += [dot("features in the explanation", MARKED)] if shown.marked.any() else []
    if keys:
        axes.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.02), frameon=False, fontsize=8, ncols=4)


def _probabilities(axes: Any, e: Explanation) -> None:
    """Bars, one for each graph the model was asked about; of classes, split by class."""
    longer = {"only": "only the\nexplanation", "without": "without it"}
    rows = [(longer.get(text, text.replace("the ", "the\n")), values) for text, values in said_rows(e)]
    kind = output_kind(e.output)
    lines, left = range(len(rows)), np.zeros(len(rows))
    for place, column in enumerate(range(len(e.probabilities)) if kind.exclusive else [e.prediction]):
        share = np.array([values[column] for _, values in rows], dtype=float)
        label = escape(shorten(class_name(e, column), 20)) if np.nanmax(share) >= 0.01 else "_nolegend_"
        axes.barh(lines, share, 0.55, left=left, color=OKABE_ITO[place % len(OKABE_ITO)], label=label)
        left += share
    for line, (_, values) in enumerate(rows):
        axes.text(0, line - 0.4, escape(shorten(describe_said(e, values), 28)), fontsize=8, va="bottom")
    axes.set_yticks(lines, [name for name, _ in rows], fontsize=8)
    axes.set(ylim=(len(rows) - 0.4, -0.75), **({"xlim": (0, 1)} if kind.probability else {}))
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(kind.axis, fontsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if kind.exclusive:
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.14), frameon=False, fontsize=8, ncols=3)


def escape(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
