"""Pictures as inline SVG: small, sharp, and coloured by the page's own light or dark style."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from cf2.errors import CF2Error, require, unknown_name
from cf2.models.outputs import output_kind
from cf2.report.charts import shorten
from cf2.report.scene import EXPLANATION, OKABE_ITO, TARGET, TRUTH, Scene, before_and_after, is_molecule, scene
from cf2.report.words import atom_names, class_names, describe_prediction, describe_said, said_rows, verdict_sentences
from cf2.results.explanation import Explanation
from cf2.units.edits import ADD, CHANGE, EDITS, REMOVE

# -- svg -------------------------------------------------------------------------------------------------


WIDTH, HEIGHT, MARGIN = 420, 320, 22
BELOW = 34  # room for a word below a picture
EDGE = 56.0  # how long an edge of a small graph is

EDIT_STYLE = """
.cf2-{0.past} {{ stroke: {0.colour}; stroke-width: {0.width}; stroke-dasharray: {1[0]} {1[1]}; fill: none; }}"""
STYLE = (
    "".join(EDIT_STYLE.format(edit, edit.dash) for edit in EDITS.values())
    + f"""
.cf2-graph {{ width: 100%; height: auto; max-width: {WIDTH}px; display: block; color: inherit; }}
.cf2-edge {{ stroke: #8a8f98; stroke-width: 1.1; stroke-opacity: .55; fill: none; }}
.cf2-true {{ stroke: {TRUTH}; stroke-width: 9; stroke-opacity: .42; stroke-linecap: round; fill: none; }}
.cf2-chosen {{ stroke: {EXPLANATION}; stroke-width: 3.4; stroke-linecap: round; fill: none; }}
.cf2-molecule.cf2-true {{ stroke-width: 19; stroke-opacity: .35; }}
.cf2-bond {{ stroke: {EXPLANATION}; stroke-width: 10; stroke-opacity: .62; stroke-linecap: round;
  fill: none; }}
.cf2-node {{ fill: #9aa1ac; stroke: none; }}
.cf2-in {{ fill: {EXPLANATION}; }}
.cf2-marked {{ fill: #F0E442; stroke: #5c5600; stroke-width: 1; }}
.cf2-target {{ fill: none; stroke: {TARGET}; stroke-width: 2.6; }}
.cf2-pair {{ max-width: {2 * WIDTH}px; }}
.cf2-cross {{ stroke: {REMOVE.colour}; stroke-width: 2.4; stroke-linecap: round; fill: none; }}
.cf2-molecule.cf2-added {{ stroke-width: 8; stroke-opacity: .6; stroke-dasharray: 7 4; }}
.cf2-text {{ font: 600 11px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central;
  fill: currentColor; }}
.cf2-small {{ font: 9px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central;
  fill: currentColor; fill-opacity: .85; }}
.cf2-larger {{ font-size: 15px; }}
.cf2-word {{ font-size: 22px; }}
"""
)


def picture(scene: Scene, title: str, *, molecule: bool = False) -> Markup:
    """The scene as one SVG element that says to a screen reader what it shows.

    An edited molecule is drawn before and after, side by side.
    """
    height = _height(scene)
    drawn = [_molecule(one, height) for one in before_and_after(scene) if molecule]
    if not drawn or None in drawn:
        return _element("cf2-graph", WIDTH, height, title, _graph(scene, height))
    if len(drawn) == 1:
        return _element("cf2-graph", WIDTH, height, title, Markup(drawn[0]))
    return _element("cf2-graph cf2-pair", 2 * WIDTH, height + BELOW, title, _side_by_side(drawn, height + BELOW / 2))


def _element(kind: str, width: int, height: int, title: str, inner: Markup) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        kind, width, height, title, inner
    )


def _molecule(scene: Scene, height: int) -> str | None:
    """A molecule as chemists draw it; what is added, taken away or changed is marked. None where it is none."""
    from cf2.report.molecules import drawing

    made = drawing(scene, WIDTH, height)
    if made is None:
        return None
    text, at = made
    put = Markup('<text class="cf2-small cf2-larger" x="{}" y="{}">{}</text>')
    words = [put.format(*_short(*(at[atom] + [0, 20])), change[:40]) for atom, change in scene.changed.items()]
    added = _lines("cf2-molecule cf2-added", at, scene.added)
    return str(Markup("").join([added, Markup(text), _struck(scene, at, 6.0), *words]))


def _side_by_side(drawn: Sequence[str | None], below: float) -> Markup:
    """Drawings in a row, with a word below each."""
    part = Markup('<g transform="translate({} 0)">{}<text class="cf2-small cf2-word" x="{}" y="{}">{}</text></g>')
    words = ("before", "after")
    return Markup("").join(
        part.format(WIDTH * place, Markup(text), WIDTH / 2, below, words[place]) for place, text in enumerate(drawn)
    )


def _height(scene: Scene) -> int:
    """As high as the graph is when it fills the width, within bounds."""
    if not len(scene.points):
        return 110
    span = np.maximum(np.ptp(scene.points, axis=0), 1e-9)
    scale = min((WIDTH - 2 * MARGIN) / span[0], EDGE)
    return int(np.clip(span[1] * scale + 2 * MARGIN + 16, 110, HEIGHT))


def fit(points: np.ndarray, width: float, height: float, margin: float) -> np.ndarray:
    """Points scaled by one factor, at most so that an edge is `EDGE` long, and centred in a box."""
    if not len(points):
        return points
    low, high = points.min(0), points.max(0)
    span = np.maximum(high - low, 1e-9)
    scale = min((width - 2 * margin) / span[0], (height - 2 * margin) / span[1], EDGE)
    return np.asarray((points - (low + high) / 2) * scale + np.array([width, height]) / 2)


def _graph(scene: Scene, height: int) -> Markup:
    at = fit(scene.points * [1, -1], WIDTH, height, MARGIN)
    count = len(scene.nodes)
    radius = 7.0 if count <= 25 else 5.0 if count <= 60 else 3.6
    parts = [
        _lines("cf2-true", at, scene.edges[scene.true]),
        _lines("cf2-edge", at, scene.edges[~scene.chosen]),
        _lines("cf2-removed" if scene.edited else "cf2-chosen", at, scene.edges[scene.chosen]),
        _lines("cf2-added", at, scene.added),
    ]
    if scene.directed:
        parts.append(_arrows(at, scene, radius))
    parts += [_node(scene, at, node, radius) for node in range(count)]
    ring = Markup('<circle class="cf2-target" cx="{}" cy="{}" r="{}"/>')
    parts += [ring.format(*_short(*at[target]), radius + 4) for target in scene.targets]
    ring = Markup('<circle class="cf2-changed" cx="{}" cy="{}" r="{}"/>')
    outer = {node: 8 if node in scene.targets else 4 for node in scene.changed}
    parts += [ring.format(*_short(*at[node]), radius + more) for node, more in outer.items()]
    parts.append(_struck(scene, at, 4.5))
    parts += _labels(scene, at, radius) + _legend(scene)
    return Markup("").join(parts)


def _struck(scene: Scene, at: np.ndarray, reach: float) -> Markup:
    """A cross on everything that a counterfactual takes away, which is seen without colours, too."""
    if not scene.edited:
        return Markup("")
    ends = scene.edges[scene.chosen]
    spots = [*((at[ends[:, 0]] + at[ends[:, 1]]) / 2).tolist(), *at[np.flatnonzero(scene.lost)].tolist()]
    path = "".join(
        f"M{x - reach:.1f} {y - reach:.1f}L{x + reach:.1f} {y + reach:.1f}"
        f"M{x - reach:.1f} {y + reach:.1f}L{x + reach:.1f} {y - reach:.1f}"
        for x, y in spots
    )
    return Markup('<path class="cf2-cross" d="{}"/>').format(path) if path else Markup("")


def _node(scene: Scene, at: np.ndarray, node: int, radius: float) -> Markup:
    kind = "cf2-node cf2-marked" if scene.marked[node] else "cf2-node cf2-in" if scene.inside[node] else "cf2-node"
    x, y = _short(*at[node])
    if scene.labels and scene.labels[node] and len(scene.nodes) <= 60:
        return Markup("")  # the label stands in the node's place
    colour = scene.colour(node)
    if colour:
        wide = 2 if scene.inside[node] or scene.marked[node] else 0
        put = Markup('<circle style="fill:{};stroke:{};stroke-width:{}" cx="{}" cy="{}" r="{}"/>')
        return put.format(colour, EXPLANATION, wide, x, y, radius)
    return Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>').format(kind, x, y, radius)


def _legend(scene: Scene) -> list[Markup]:
    """The types and their colours, below each other in a corner."""
    put = Markup(
        '<circle style="fill:{}" cx="8" cy="{}" r="4"/>'
        '<text class="cf2-small" style="text-anchor:start" x="16" y="{}">{}</text>'
    )
    return [put.format(colour, 10 + 13 * n, 10 + 13 * n, name) for n, (colour, name) in enumerate(scene.legend)]


def _labels(scene: Scene, at: np.ndarray, radius: float) -> list[Markup]:
    """Labels instead of nodes where they have any; else the ids of the nodes that matter."""
    put = Markup('<text class="cf2-small" x="{}" y="{}">{}</text>')
    below = [put.format(*_short(*(at[n] + [0, radius + 15])), text[:40]) for n, text in scene.changed.items()]
    if scene.labels and len(scene.nodes) <= 60:
        few = len(scene.nodes) <= 25 and max(map(len, scene.labels)) <= 2
        name = Markup('<text class="{}" x="{}" y="{}">{}</text>')
        kind = "cf2-text cf2-larger" if few else "cf2-text"
        return [name.format(kind, *_short(x, y), label[:6]) for (x, y), label in zip(at, scene.labels)] + below
    if len(scene.special) > 24:
        return below
    reach = np.full((len(at), 1), radius + 8)
    reach[[*scene.targets, *scene.changed]] += 5  # outside of the ring
    spots = at + scene.outward * [1, -1] * reach
    return [put.format(*_short(*spots[n]), scene.text(n)) for n in scene.special] + below


def _lines(kind: str, at: np.ndarray, edges: np.ndarray) -> Markup:
    if not len(edges):
        return Markup("")
    ends = np.concatenate([at[edges[:, 0]], at[edges[:, 1]]], 1).tolist()
    path = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in ends)
    return Markup('<path class="{}" d="{}"/>').format(kind, path)


def _arrows(at: np.ndarray, scene: Scene, radius: float) -> Markup:
    parts = []
    chosen = "cf2-removed" if scene.edited else "cf2-chosen"
    sorts = (("cf2-edge", scene.edges[~scene.chosen]), (chosen, scene.edges[scene.chosen]), ("cf2-added", scene.added))
    for kind, edges in sorts:
        path = []
        for a, b in edges.tolist():
            way = at[b] - at[a]
            way = way / max(float(np.hypot(*way)), 1e-9)
            tip, side = at[b] - way * (radius + 1), np.array([-way[1], way[0]])
            left, right = tip - way * 7 + side * 3.5, tip - way * 7 - side * 3.5
            path.append(f"M{left[0]:.1f} {left[1]:.1f}L{tip[0]:.1f} {tip[1]:.1f}L{right[0]:.1f} {right[1]:.1f}")
        if path:
            parts.append(Markup('<path class="{}" d="{}"/>').format(kind, "".join(path)))
    return Markup("").join(parts)


def _short(x: float, y: float) -> tuple[str, str]:
    return f"{x:.1f}", f"{y:.1f}"


# -- figures ---------------------------------------------------------------------------------------------


LARGEST = 200  # inches; a picture of more than 2¹⁶ points is not drawn
GREY, NODE = "#b3b8c0", "#9aa1ac"


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
    _check(context, size)
    context = context or {}
    shown = _placed(e, _scene(e, context), layout)
    if ax is not None:
        require(hasattr(ax, "add_collection"), "Expected `ax` to be matplotlib axes", got=_kind(ax))
        _draw_on(ax, shown, is_molecule(context) and layout is None)
        if path is not None:
            _save(ax.figure, path)
        return ax
    figure = _picture(size)
    if probabilities:
        left, right = figure.subplots(1, 2, width_ratios=(2.3, 1))
        _probabilities(right, e, context)
    else:
        left = figure.subplots()
    _draw_on(left, shown, is_molecule(context) and layout is None)
    if words:
        figure.suptitle(_escape(describe_prediction(e, class_names(context))), fontsize=11, fontweight="bold")
        lines = [f"{s.head}: {s.text}" for s in verdict_sentences(e, class_names(context), atom_names(context))]
        lines += [shown.caption] if shown.caption else []
        wide = int(size[0] * 13)
        text = "\n".join(part for line in lines for part in textwrap.wrap(line, wide))
        figure.supxlabel(_escape(text), fontsize=9, x=0.01, ha="left")
    if path is not None:
        _save(figure, path)
    return figure


def _picture(size: tuple[float, float]) -> Any:
    """An empty figure that a notebook shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A matplotlib figure that a notebook shows, whatever its backend."""

        def _repr_png_(self) -> bytes:
            return _written(self, "png")

    figure = Picture(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _written(figure: Any, kind: str) -> bytes:
    made = io.BytesIO()
    figure.savefig(made, format=kind, dpi=100)
    return made.getvalue()


def _save(figure: Any, path: Any) -> None:
    require(isinstance(path, str | Path), "Expected `path` to name the file of a picture", got=repr(path)[:80])
    known = figure.canvas.get_supported_filetypes()
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in known:
        raise unknown_name("the ending of `path`", kind, known)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_on(axes: Any, shown: Scene, molecule: bool) -> None:
    if not (molecule and _molecule_figures(axes, shown)):
        draw(axes, shown)
    _legend_figures(axes, shown)


def _placed(e: Explanation, shown: Scene, layout: Any) -> Scene:
    """The scene with the nodes where the user wants them."""
    if layout is None:
        return shown
    points = layout(e.to_networkx()) if callable(layout) else layout
    expected = "Expected `layout` to hold a point (x, y) for every node that is drawn, by its id"
    require(isinstance(points, Mapping), expected, got=_kind(points))
    keys = [(shown.kind_names[k], i) for k, i in zip(shown.kinds, shown.ids)] if shown.ids else shown.nodes.tolist()
    missing = next((key for key in keys if key not in points), None)
    require(missing is None, expected, got=f"none for {missing}")
    try:
        places = np.array([[float(part) for part in points[key]] for key in keys]).reshape(len(keys), 2)
    except (TypeError, ValueError) as error:
        raise CF2Error(expected, got=f"{type(error).__name__}: {error}") from error
    return replace(shown, points=places)


def _check(context: Any, size: Any) -> None:
    numbers = isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(s, int | float) for s in size)
    require(
        numbers and all(1 <= side <= LARGEST for side in size),
        f"Expected `size` to be a width and a height in inches, from 1 to {LARGEST}",
        got=repr(size)[:80],
    )
    require(context is None or isinstance(context, Mapping), "Expected `context` to be a mapping", got=_kind(context))
    names = (context or {}).get("class_names") or ()
    good = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    require(good, "Expected `class_names` in `context` to be a list of names", got=repr(names)[:80])


def _kind(value: object) -> str:
    return f"an object of type {type(value).__name__}"


def _scene(e: Explanation, context: Mapping[str, Any]) -> Scene:
    try:
        return scene(e, context)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        got = f"{type(error).__name__}: {error}"
        expected = "Expected `context` to hold the true edges as pairs by key in `truth`, and graphs by key in `graphs`"
        raise CF2Error(expected, got=got) from error


def draw(axes: Any, shown: Scene) -> None:
    """The graph on a matplotlib axes."""
    from matplotlib.collections import LineCollection

    axes.set_axis_off()
    axes.set_aspect("equal")
    points, ends = shown.points, shown.points[shown.edges]
    _leave_room(axes, points)
    many = len(shown.nodes)
    area = 130 if many <= 25 else 60 if many <= 60 else 26
    styles = (
        (shown.true, TRUTH, 9.0, 0.42, 1),
        (~shown.chosen, GREY, 0.9 if many <= 60 else 0.6, 0.7, 2),
        (shown.chosen & (not shown.edited), EXPLANATION, 3.2, 1.0, 3),
    )
    for which, colour, width, alpha, level in styles:
        lines = LineCollection(ends[which], colors=colour, linewidths=width, alpha=alpha, zorder=level)
        lines.set_capstyle("round")
        axes.add_collection(lines)
    _edits(axes, shown, points)
    if shown.directed:
        _arrows_figures(axes, shown)
    colours = np.full(many, NODE, dtype=object)
    colours[shown.inside] = EXPLANATION
    colours[shown.marked > 0] = "#F0E442"
    if len(shown.kinds):
        colours[:] = [shown.colour(node) for node in range(many)]
    axes.scatter(points[:, 0], points[:, 1], s=area, c=list(colours), zorder=4, linewidths=0)
    x, y = points[list(shown.targets)].T
    axes.scatter(x, y, s=area * 3.2, facecolors="none", edgecolors=TARGET, linewidths=2.4, zorder=5)
    _node_text(axes, shown)


def _edits(axes: Any, shown: Scene, at: np.ndarray, width: float = 3.2) -> None:
    """Added edges in dashes, crosses on what is taken away, and rings around changed nodes, at their places [n, 2]."""
    from matplotlib.collections import LineCollection

    if not shown.edited:
        return
    ends, taken = at[shown.added], shown.edges[shown.chosen]
    new = LineCollection(ends, colors=ADD.colour, linewidths=width, linestyles=[(0, (2.2, 1.4))], zorder=3)
    axes.add_collection(new)
    gone = LineCollection(at[taken], colors=REMOVE.colour, linewidths=1.6, linestyles=[(0, (2, 2))], zorder=3)
    axes.add_collection(gone)
    spots = np.concatenate([at[taken].mean(1).reshape(-1, 2), at[np.flatnonzero(shown.lost)]])
    axes.scatter(spots[:, 0], spots[:, 1], s=52, marker="x", c=REMOVE.colour, linewidths=2.2, zorder=7)
    for node, text in shown.changed.items():
        ring = {"facecolors": "none", "edgecolors": CHANGE.colour, "linewidths": 2.2, "linestyles": "--", "zorder": 5}
        axes.scatter(*at[node], s=420 if node in shown.targets else 260, **ring)
        look: dict[str, Any] = {"xytext": (0, -16), "textcoords": "offset points", "ha": "center", "va": "center"}
        axes.annotate(_escape(text[:40]), at[node], fontsize=7.5, zorder=6, color="#111", **look)


def _leave_room(axes: Any, points: np.ndarray) -> None:
    """Limits around all points; what lies on a line still gets some height, so that no node is cut off."""
    if len(points):
        middle, half = (points.max(0) + points.min(0)) / 2, (points.max(0) - points.min(0)) / 2
        half = np.maximum(half, max(0.3 * float(half.max()), 1e-3)) * 1.16
        axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
        axes.set_ylim(middle[1] - half[1], middle[1] + half[1])


def _node_text(axes: Any, shown: Scene) -> None:
    """Labels where there are any, else the ids of the nodes in the explanation."""
    special = shown.special
    labelled = bool(shown.labels) and len(shown.nodes) <= 100
    for node in range(len(shown.nodes)) if labelled else special if len(special) <= 24 else ():
        text = shown.labels[node][:6] if labelled else shown.text(node)
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5, "zorder": 6, "color": "#111"}
        if not labelled:
            far = 17 if node in shown.targets else 13  # beyond the ring
            style |= {"xytext": tuple(far * shown.outward[node]), "textcoords": "offset points"}
        axes.annotate(_escape(text), shown.points[node], **style)


def _arrows_figures(axes: Any, shown: Scene) -> None:
    for (a, b), chosen in zip(shown.edges.tolist(), shown.chosen.tolist()):
        look = {"arrowstyle": "-|>", "color": EXPLANATION if chosen else GREY, "shrinkB": 5, "linewidth": 0.8}
        axes.annotate("", shown.points[b], shown.points[a], arrowprops=look, zorder=3)
    for a, b in shown.added.tolist():
        look = {"arrowstyle": "-|>", "color": ADD.colour, "shrinkB": 5, "linewidth": 0.8, "linestyle": "--"}
        axes.annotate("", shown.points[b], shown.points[a], arrowprops=look, zorder=3)


def _molecule_figures(axes: Any, shown: Scene) -> bool:
    """Draw a molecule, an edited one before and after; returns whether it is one."""
    from cf2.report.molecules import placed_image

    parts = before_and_after(shown)
    made = [placed_image(part) for part in parts]
    found = [one for one in made if one is not None]
    if len(found) < len(parts):
        return False
    axes.imshow(np.concatenate([pixels for pixels, _ in found], 1))
    axes.set_axis_off()
    height, width = found[0][0].shape[:2]
    for place, (part, (_, at)) in enumerate(zip(parts, found)):
        _edits(axes, part, at + np.array([width * place, 0]), 2.6)
        if shown.has_edits:
            axes.text(width * (place + 0.5), height, ("before", "after")[place], ha="center", va="top", fontsize=9)
    return True


def _legend_figures(axes: Any, shown: Scene) -> None:
    from matplotlib.lines import Line2D

    keys: list[Any] = []
    for edit in shown.edit_kinds:
        if edit.mark != "ring":
            marker = "x" if edit.mark == "cross" else None
            look: dict[str, Any] = {"linewidth": edit.width, "linestyle": "--", "marker": marker}
            keys.append(Line2D([], [], color=edit.colour, label=edit.past, **look))
    if shown.inside.any() and not shown.edited:
        keys.append(Line2D([], [], color=EXPLANATION, linewidth=3.2, label="explanation"))
    if shown.has_truth:
        keys.append(Line2D([], [], color=TRUTH, linewidth=8, alpha=0.42, label="known truth"))
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 9}
    if shown.targets:
        keys.append(Line2D([], [], markerfacecolor="none", markeredgecolor=TARGET, label="explained node", **dot))
    keys += [Line2D([], [], color=colour, label=name, **dot) for colour, name in shown.legend]
    rings = [edit for edit in shown.edit_kinds if edit.mark == "ring"]
    keys += [Line2D([], [], markerfacecolor="none", markeredgecolor=e.colour, label=e.past, **dot) for e in rings]
    if shown.marked.any():
        keys.append(Line2D([], [], color="#F0E442", label="features in the explanation", **dot))
    if keys:
        axes.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.5, 0.02), frameon=False, fontsize=8, ncols=4)


def _probabilities(axes: Any, e: Explanation, context: Mapping[str, Any]) -> None:
    """Bars, one for each graph the model was asked about; of classes, split by class."""
    names, longer = class_names(context), {"only": "only the\nexplanation", "without": "without it"}
    rows = [(longer.get(text, text.replace("the ", "the\n")), values) for text, values in said_rows(e)]
    kind = output_kind(e.output)
    lines, left = range(len(rows)), np.zeros(len(rows))
    for place, column in enumerate(range(len(e.probabilities)) if kind.exclusive else [e.prediction]):
        share = np.array([values[column] for _, values in rows], dtype=float)
        label = _escape(shorten(kind.column_name(column, names), 20))
        axes.barh(lines, share, 0.55, left=left, color=OKABE_ITO[place % len(OKABE_ITO)], label=label)
        left += share
    for line, (_, values) in enumerate(rows):
        axes.text(0, line - 0.4, _escape(shorten(describe_said(e, values, names), 28)), fontsize=8, va="bottom")
    axes.set_yticks(lines, [name for name, _ in rows], fontsize=8)
    axes.set(ylim=(len(rows) - 0.4, -0.75), **({"xlim": (0, 1)} if kind.probability else {}))
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(kind.axis, fontsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if kind.exclusive:
        columns = min(3, len(e.probabilities))
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.14), frameon=False, fontsize=8, ncols=columns)


def _escape(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
