"""One self-contained HTML page about a run, and the short forms that notebooks show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from cf2.errors import CF2Error, require, require_number
from cf2.explanation import Explanation, Explanations
from cf2.report import charts, intervals, svg
from cf2.report.scene import OKABE_ITO, is_molecule, scene
from cf2.report.words import STATUS, class_name, class_names, counted, prediction, sentences, subject, units

PICTURES = 60  # instances that are drawn
ROWS = 20_000  # rows of the table, one an instance and method
LISTED = 40  # edges and feature entries that are written out


def write_report(
    found: Sequence[Explanations],
    path: str | Path,
    *,
    pictures: int = PICTURES,
    rows: int = ROWS,
    title: str = "",
) -> Path:
    """Write one HTML file about the explanations, one `Explanations` a method; returns its path.

    The first `pictures` instances are drawn and the first `rows` rows listed, and the page says so.
    """
    require_number("pictures", pictures, 0, integer=True)
    require_number("rows", rows, 0, integer=True)
    groups = _groups(found)
    require(bool(groups), "Expected at least one explanation to report", got="none")
    path = Path(path)
    if path.is_dir():
        raise CF2Error("Expected the path of a file to write", got=f"{str(path)!r}, a directory")
    page = _environment().get_template("report.html").render(**_page(groups, pictures, rows, title))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def explanation_html(e: Explanation, context: Mapping[str, Any] | None = None) -> str:
    """One explanation as an HTML fragment for a notebook."""
    context = context or {}
    card = _card([(e.method or "explanation", e)], context)
    return str(_environment().get_template("explanation.html").render(card=card, style=_style()))


def explanations_html(found: Explanations, shown: int = 8) -> str:
    """A summary and the first few explanations as an HTML fragment for a notebook."""
    if not found:
        return "<p>No explanations.</p>"
    rows = [_row(e, e.method, class_names(found.context)) for e in found.items[:shown]]
    parts = {"rows": rows, "methods": _summaries(_groups([found])), "more": max(0, len(found) - shown)}
    page = _environment().get_template("explanations.html")
    return str(page.render(**parts, style=_style(), status=STATUS))


def _groups(found: Sequence[Explanations]) -> list[tuple[str, Explanations]]:
    """Explanations by method, in the order in which methods first appear."""
    groups: dict[str, Explanations] = {}
    for given in found:
        for method in dict.fromkeys(e.method for e in given):
            part = Explanations(tuple(e for e in given if e.method == method), given.context)
            name = method or "explanations"
            groups[name] = groups[name] + part if name in groups else part
    return list(groups.items())


def _page(groups: list[tuple[str, Explanations]], pictures: int, rows: int, title: str) -> dict[str, Any]:
    methods = _summaries(groups)
    context = next((found.context for _, found in groups if found.context), {})
    names = class_names(context)
    keys = list(dict.fromkeys(e.key for _, found in groups for e in found))
    total = sum(len(found) for _, found in groups)
    drawn = set(keys[:pictures])
    by_key: dict[int, list[tuple[str, Explanation]]] = {key: [] for key in keys[:pictures]}
    for name, found in groups:
        for e in found:
            if e.key in drawn:
                by_key[e.key].append((name, e))
    listed = [_row(e, name, names) for name, found in groups for e in found.items[: max(1, rows // len(groups))]]
    data = context.get("dataset")
    return {
        "title": title or (f"Explanations of {data}" if data else "Explanations"),
        "model": context.get("model") or "",
        "instances": counted(len(keys), "instance"),
        "methods": methods,
        "top": max(m["size"].high for m in methods),
        "sizes": charts.histogram([(name, [e.size for e in found]) for name, found in groups]),
        "cards": [_card(shown, context) for shown in by_key.values()],
        "hidden": len(keys) - len(drawn),
        "unlisted": total - len(listed),
        "rows": listed[:rows],
        "truth": bool(context.get("truth")),
        "nodes": any(e.task == "node" for _, found in groups for e in found[:1]),
        "marked": any(len(e.features) for _, found in groups for e in found[:pictures]),
        "classes": list(zip(names or (), OKABE_ITO)),
        "style": _style() + _asset("report.css"),
        "script": _asset("report.js"),
        "status": STATUS,
    }


def _summaries(groups: list[tuple[str, Explanations]]) -> list[dict[str, Any]]:
    return [_summary(name, found) for name, found in groups]


def _summary(name: str, found: Explanations) -> dict[str, Any]:
    status = [e.status for e in found]
    return {
        "name": name,
        "n": len(found),
        "pn": intervals.share([e.necessary for e in found]),
        "ps": intervals.share([e.sufficient for e in found]),
        "fns": intervals.fns(found),
        "size": intervals.mean([e.size for e in found]),
        "both": sum(e.sufficient and e.necessary for e in found),
        "minimal": sum(bool(e.minimal) or bool(e.optimal) for e in found),
        "optimal": sum(bool(e.optimal) for e in found),
        "impossible": status.count("impossible"),
        "missed": status.count("not found"),
        "refused": status.count("refused"),
        "f1": intervals.truth_f1(found, found.context),
        "seconds": _mean([e.seconds for e in found]),
        "evaluations": _mean([e.evaluations for e in found]),
    }


def _mean(values: Sequence[float]) -> float:
    """The mean, 0 for nothing."""
    return sum(values) / len(values) if values else 0.0


def _row(e: Explanation, method: str, names: Sequence[str] | None) -> dict[str, Any]:
    """One line of the table, as plain values."""
    return {
        "key": e.key,
        "method": method,
        "says": class_name(e.prediction, names),
        "p": round(float(e.probabilities[e.prediction]), 3),
        "true": None if e.label is None else class_name(e.label, names),
        "wrong": e.label is not None and e.label != e.prediction,
        "size": e.size,
        "sufficient": bool(e.sufficient),
        "necessary": bool(e.necessary),
        "status": e.status,
    }


def _card(shown: Sequence[tuple[str, Explanation]], context: Mapping[str, Any]) -> dict[str, Any]:
    """One instance with a picture a method."""
    names = class_names(context)
    first = shown[0][1]
    others = [e for _, e in shown]
    return {
        "key": first.key,
        "subject": subject(first),
        "prediction": prediction(first, names),
        "wrong": first.label is not None and first.label != first.prediction,
        "panels": [_panel(name, e, context, others, names) for name, e in shown],
    }


def _panel(
    name: str,
    e: Explanation,
    context: Mapping[str, Any],
    others: Sequence[Explanation],
    names: Sequence[str] | None,
) -> dict[str, Any]:
    drawn = scene(e, context, others)
    said = [class_name(number, names) for number in range(len(e.probabilities))]
    words = sentences(e, names)
    label = f"{subject(e)}, explained by {name}: " + " ".join(f"{s.head}: {s.text}" for s in words)
    rows = (("all", e.probabilities), ("only", e.only), ("without", e.without))
    edges = e.unit_edges[e.selected[: len(e.unit_edges)]].tolist()
    arrow = "→" if e.directed else "–"
    return {
        "name": name,
        "picture": svg.picture(drawn, label, molecule=is_molecule(context)) if len(drawn.nodes) else Markup(""),
        "bars": charts.bars([(title, values.tolist()) for title, values in rows], said),
        "sentences": words,
        "caption": drawn.caption,
        "size": units(e),
        "edges": [f"{u}{arrow}{v}" for u, v in edges[:LISTED]],
        "features": [f"{node}:{column}" for node, column in e.features[:LISTED].tolist()],
        "more": max(0, len(edges) - LISTED) + max(0, len(e.features) - LISTED),
        "truth": drawn.has_truth,
    }


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("cf2.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["whisker"] = charts.whisker
    return made


def _asset(name: str) -> Markup:
    return Markup((Path(__file__).parent / "templates" / name).read_text(encoding="utf-8"))


def _style() -> Markup:
    """The styles of the pictures and of what stands beside them."""
    return Markup(svg.STYLE + charts.STYLE) + _asset("card.css")
