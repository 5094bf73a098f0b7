"""One self-contained HTML page about a run, and the short forms that notebooks show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from cf2.errors import require, require_number
from cf2.options import Key, titled
from cf2.patterns.edit_rules import EditRules
from cf2.patterns.pictures import edit_rule_sections, pattern_sections
from cf2.patterns.summary import Patterns
from cf2.report import charts
from cf2.report import pictures as svg
from cf2.report.scene import OKABE_ITO, is_molecule, scene
from cf2.report.words import (
    STATUS,
    adds_or_changes,
    atom_names,
    class_name,
    class_names,
    count_nouns,
    count_units,
    describe_prediction,
    describe_target,
    describe_unit,
    key_id,
    list_edits,
    said_rows,
    short_said,
    unit_words,
    verdict_sentences,
)
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.storage import check_place, write_bytes

PICTURES = 60  # instances that are drawn
ROWS = 20_000  # rows of the table, one per instance and method
LISTED = 40  # units of each kind that are written out


def write_report(
    found: Sequence[Explanations],
    path: str | Path,
    *,
    pictures: int = PICTURES,
    rows: int = ROWS,
    title: str = "",
    patterns: Patterns | None = None,
    rules: EditRules | None = None,
) -> Path:
    """Write one HTML file about explanations, one `Explanations` per method or several methods in one.

    The other parameters are those of `Explanations.report`; `rules` are the edit rules that `Explanations.rules` gives.
    """
    require_number("pictures", pictures, 0, integer=True)
    require_number("rows", rows, 0, integer=True)
    groups = _groups(found)
    require(bool(groups), "Expected at least one explanation to report", got="none")
    path = Path(path)
    check_place(path)
    partial = [given.context["partial"] for given in found if "partial" in given.context]
    drawn = frozenset(list(dict.fromkeys(e.key for _, given in groups for e in given))[:pictures])
    parts = _page(groups, pictures, rows, title) | {"partial": partial}
    parts |= {"patterns": [] if patterns is None else pattern_sections(patterns, drawn)}
    parts |= {"rules": [] if rules is None else edit_rule_sections(rules, drawn)}
    parts |= {"about": {} if patterns is None else patterns.about, "about_rules": {} if rules is None else rules.about}
    page = environment().get_template("report.html").render(**parts)
    write_bytes(path, page.encode())
    return path


def explanation_html(e: Explanation, context: Mapping[str, Any] | None = None) -> str:
    """One explanation as an HTML fragment for a notebook."""
    context = context or {}
    card = _card([(e.method or "explanation", e)], context)
    return str(environment().get_template("explanation.html").render(card=card, style=_style()))


def explanations_html(found: Explanations, shown: int = 8) -> str:
    """A summary and the first few explanations as an HTML fragment for a notebook."""
    if not found:
        return "<p>No explanations.</p>"
    rows = [_row(e, e.method, found.context) for e in found.items[:shown]]
    parts = {
        "rows": rows,
        "edits": any(row["edits"] for row in rows),
        "numbers": _numbers(found),
        "methods": _summaries(_groups([found])),
        "more": max(0, len(found) - shown),
    }
    page = environment().get_template("explanations.html")
    return str(page.render(**parts, style=_style(), status=STATUS))


def _groups(found: Sequence[Explanations]) -> list[tuple[str, Explanations]]:
    """Explanations by method, and by question where there are several, in the order in which they first appear."""
    groups: dict[str, Explanations] = {}
    several = len({e.question for given in found for e in given}) > 1
    for given in found:
        for method, question in dict.fromkeys((e.method, e.question) for e in given):
            mine = tuple(e for e in given if (e.method, e.question) == (method, question))
            part = Explanations(mine, given.context)
            name = titled(method or "explanations", question, several)
            groups[name] = groups[name] + part if name in groups else part
    return list(groups.items())


def _page(groups: list[tuple[str, Explanations]], pictures: int, rows: int, title: str) -> dict[str, Any]:
    methods = _summaries(groups)
    context = next((found.context for _, found in groups if found.context), {})
    names = class_names(context)
    keys = list(dict.fromkeys(e.key for _, found in groups for e in found))
    total = sum(len(found) for _, found in groups)
    drawn = set(keys[:pictures])
    by_key: dict[Key, list[tuple[str, Explanation]]] = {key: [] for key in keys[:pictures]}
    for name, found in groups:
        for e in found:
            if e.key in drawn:
                by_key[e.key].append((name, e))
    listed = [_row(e, name, context) for name, found in groups for e in found.items[: max(1, rows // len(groups))]]
    cards = [_card(shown, context) for shown in by_key.values()]
    data = context.get("dataset")
    return {
        "title": title or (f"Explanations of {data}" if data else "Explanations"),
        "model": context.get("model") or "",
        "instances": count_nouns(len(keys), "instance"),
        "methods": methods,
        "top": max(m["size"].high for m in methods),
        "sizes": charts.histogram([(name, [e.size for e in found]) for name, found in groups]),
        "cards": cards,
        "hidden": len(keys) - len(drawn),
        "unlisted": total - len(listed),
        "rows": listed[:rows],
        "truth": bool(context.get("truth")),
        "targets": next((e.task for _, found in groups for e in found if e.task != "graph"), ""),
        "edits": any(row["edits"] for row in listed),
        "numbers": all(_numbers(found) for _, found in groups),
        "drawn_as": {kind for card in cards for panel in card["panels"] for kind in panel["drawn_as"]},
        "marked": any(panel["marked"] for card in cards for panel in card["panels"]),
        "classes": list(zip(names or (), OKABE_ITO)),
        "style": _style() + _asset("report.css"),
        "script": _asset("report.js"),
        "status": STATUS,
        "verdicts": [(name, text, count) for name, text in STATUS.items() if (count := _count(listed, name))],
    }


def _numbers(found: Explanations) -> bool:
    """Whether the model gives numbers: these have no probability and no true class."""
    return all(e.output == "regression" for e in found)


def _count(rows: Sequence[Mapping[str, Any]], status: str) -> int:
    return sum(row["status"] == status for row in rows)


def _summaries(groups: list[tuple[str, Explanations]]) -> list[dict[str, Any]]:
    return [_summary(name, found) for name, found in groups]


def _summary(name: str, found: Explanations) -> dict[str, Any]:
    status = [e.status for e in found]
    return {
        "name": name,
        "n": len(found),
        "edited": all(map(adds_or_changes, found)),
        **metrics.intervals(found, found.context.get("truth")),
        "reached": sum(e.necessary for e in found),
        "both": sum(e.sufficient and e.necessary for e in found),
        "minimal": sum(bool(e.minimal) or bool(e.optimal) for e in found),
        "optimal": sum(bool(e.optimal) for e in found),
        "impossible": status.count("impossible"),
        "missed": status.count("not found"),
        "refused": status.count("refused"),
        "seconds": sum(e.seconds for e in found) / len(found),
    }


def _row(e: Explanation, method: str, context: Mapping[str, Any]) -> dict[str, Any]:
    """One line of the table, as plain values; a key is a list of ids, so that it sorts by number.

    Edits that add or change are no part of the graph, which could be sufficient alone: None.
    """
    names = class_names(context)
    return {
        "key": e.key if isinstance(e.key, tuple) else (e.key,),
        "method": method,
        "says": short_said(e, names),
        "p": round(float(e.probabilities[e.prediction]), 4),
        "true": None if e.label is None else class_name(e.label, names),
        "wrong": e.label is not None and e.label != e.prediction,
        "size": e.size,
        "edits": list_edits(e, atom_names(context)),
        "sufficient": None if adds_or_changes(e) else bool(e.sufficient),
        "necessary": bool(e.necessary),
        "status": e.status,
    }


def _card(shown: Sequence[tuple[str, Explanation]], context: Mapping[str, Any]) -> dict[str, Any]:
    """One instance with a picture per method."""
    names = class_names(context)
    first = shown[0][1]
    others = [e for _, e in shown]
    return {
        "id": key_id(first.key),
        "prediction": describe_prediction(first, names),
        "panels": [_panel(name, e, context, others, names) for name, e in shown],
    }


def _panel(
    name: str, e: Explanation, context: Mapping[str, Any], others: Sequence[Explanation], names: Sequence[str] | None
) -> dict[str, Any]:
    drawn = scene(e, context, others)
    words = verdict_sentences(e, names, atom_names(context))
    label = f"{describe_target(e)}, explained by {name}: " + " ".join(f"{s.head}: {s.text}" for s in words)
    removed = drawn.edited and bool(drawn.chosen.any() or drawn.lost.any())
    sorts = (
        ("chosen", not drawn.edited),
        ("added", len(drawn.added) > 0),
        ("removed", removed),
        ("changed", bool(drawn.changed)),
    )
    return {
        "name": name,
        "picture": svg.picture(drawn, label, molecule=is_molecule(context)) if len(drawn.nodes) else Markup(""),
        "bars": charts.said(e, said_rows(e), names),
        "sentences": words,
        "caption": drawn.caption,
        "size": count_units(e),
        "units": _listed(e, atom_names(context)),
        "edits": list_edits(e, atom_names(context), LISTED),
        "wide": drawn.has_edits and is_molecule(context),
        "drawn_as": [name for name, holds in sorts if holds],
        "marked": bool(drawn.marked.any()),
    }


def _listed(e: Explanation, atoms: Sequence[str] | None) -> list[tuple[str, list[str], int]]:
    """The chosen units by kind: the kind's name, the first units, and how many more there are."""
    parts = []
    for name in e.units.names:
        rows = e.units.where(name)
        rows = rows[e.selected[rows]]
        if len(rows):
            shown = [describe_unit(e, row, atoms) for row in rows[:LISTED].tolist()]
            parts.append((unit_words(name).plural.capitalize(), shown, len(rows) - len(shown)))
    return parts


@lru_cache(maxsize=1)
def environment() -> Any:
    """Where the templates are; what comes from outside is escaped."""
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
    """The styles of the pictures, the charts and the cards."""
    return Markup(svg.STYLE + charts.STYLE) + _asset("card.css")
