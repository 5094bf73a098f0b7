"""One self-contained HTML page about a run, and the short forms that notebooks show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from cf2.errors import require, require_number, require_path
from cf2.models.outputs import output_kind
from cf2.options import Key, titled
from cf2.report import charts, environment
from cf2.report import pictures as svg
from cf2.report.plots import MAX_SHARED, contents, share, shared
from cf2.report.scene import MOLECULE, OKABE_ITO, scene
from cf2.report.words import (
    adds_or_changes,
    class_name,
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
from cf2.results.explanation import STATUSES, WHOLE, Explanation
from cf2.results.explanations import Explanations
from cf2.results.names import entry
from cf2.storage import check_place, write_bytes
from cf2.units.edits import EDITS

MAX_PICTURES = 60  # instances that are drawn
MAX_ROWS = 20_000  # rows of the table, one per instance and method
MAX_LISTED = 40  # units of each kind that are written out
MAX_NOTEBOOK_ROWS = 8


def write_report(
    found: Sequence[Explanations],
    path: str | Path,
    *,
    pictures: int = MAX_PICTURES,
    rows: int = MAX_ROWS,
    title: str = "",
    patterns: Any = None,
    rules: Any = None,
) -> Path:
    """Write one HTML file about explanations, one `Explanations` per method or several methods in one.

    The other parameters are those of `Explanations.report`; `rules` are the edit rules that `Explanations.rules` gives.
    """
    from cf2.patterns.pictures import summary_parts

    require_number("pictures", pictures, 0, integer=True)
    require_number("rows", rows, 0, integer=True)
    groups = _groups(found)
    require(bool(groups), "Expected at least one explanation to report", got="none")
    path = require_path(path, "a file to write")
    check_place(path)
    html = path.suffix.lower() in (".html", ".htm")
    require(html, "Expected the path of an .html file for the report", got=repr(path.name)[:80])
    keys = list(dict.fromkeys(e.key for _, given in groups for e in given))
    drawn = frozenset(keys[:pictures])
    parts = _page(groups, keys, drawn, rows, title)
    parts["summaries"] = [summary_parts(summary, drawn) for summary in (patterns, rules) if summary]
    parts["partial"] = [given.context["partial"] for given in found if "partial" in given.context]
    write_bytes(path, environment().get_template("report.html").render(**parts).encode())
    return path


def explanation_html(e: Explanation) -> str:
    """One explanation as an HTML fragment for a notebook."""
    own = card([(e.method or "explanation", e)])
    return str(environment().get_template("explanation.html").render(card=own, style=svg.STYLE))


def explanations_html(found: Explanations) -> str:
    """A summary and the first few explanations as an HTML fragment for a notebook."""
    if not found:
        return "<p>No explanations.</p>"
    rows = [row(e, e.method) for e in found.items[:MAX_NOTEBOOK_ROWS]]
    parts = {
        "rows": rows,
        "edits": any(line["edits"] for line in rows),
        "numbers": _gives_numbers(found),
        "methods": [_summary(*group) for group in _groups([found])],
        "more": len(found) - len(rows),
    }
    return str(environment().get_template("explanations.html").render(**parts, style=svg.STYLE, statuses=STATUSES))


def _groups(found: Sequence[Explanations]) -> list[tuple[str, Explanations]]:
    """Explanations by method, and by question where there are several, in the order in which they first appear."""
    groups: dict[str, Explanations] = {}
    several = len({e.question for given in found for e in given}) > 1
    for given in found:
        for method, question in dict.fromkeys((e.method, e.question) for e in given):
            items = tuple(e for e in given if (e.method, e.question) == (method, question))
            part = Explanations(items, given.context)
            name = titled(method or "explanations", question, several)
            groups[name] = groups[name] + part if name in groups else part
    return list(groups.items())


def _page(
    groups: list[tuple[str, Explanations]], keys: list[Key], drawn: frozenset[Key], rows: int, title: str
) -> dict[str, Any]:
    methods = [_summary(*group) for group in groups]
    context = next((found.context for _, found in groups if found.context), {})
    by_key: dict[Key, list[tuple[str, Explanation]]] = {key: [] for key in keys if key in drawn}
    for name, e in ((name, e) for name, found in groups for e in found if e.key in drawn):
        by_key[e.key].append((name, e))
    cards = [card(shown) for shown in by_key.values()]
    panels = [panel for card in cards for panel in card["panels"]]
    # Every method has the same room in the table.
    in_table = [(name, e) for name, found in groups for e in found.items[: max(1, rows // len(groups))]]
    listed = [row(e, name) for name, e in in_table]
    counts = Counter(line["status"] for line in listed)
    data = context.get("dataset")
    held = _held([e for _, found in groups for e in found])
    names = {content: place for place, (content, _) in enumerate(held)}
    for line, (_, e) in zip(listed, in_table):
        line["holds"] = sorted(names[content] for content in contents(e) & names.keys())
    kinds = {kind for panel in panels for kind in panel["drawn_as"]}
    target = next((e.task for _, found in groups for e in found if e.task not in WHOLE), "")
    return {
        "title": title or (f"Explanations of {data}" if data else "Explanations"),
        "model": context.get("model") or "",
        "instances": count_nouns(len(keys), "instance"),
        "methods": methods,
        "top": max(m["size"].high for m in methods),
        "sizes": charts.histogram([(name, [e.size for e in found]) for name, found in groups]),
        "cards": cards,
        "hidden": len(keys) - len(drawn),
        "unlisted": sum(len(found) for _, found in groups) - len(listed),
        "rows": listed[:rows],
        "truth": bool(context.get("truth")),
        "legend": legend(kinds, context, target, any(panel["marked"] for panel in panels)),
        "held": held,
        "contexts": any("pns" in m for m in methods),
        "edits": any(line["edits"] for line in listed),
        "numbers": all(_gives_numbers(found) for _, found in groups),
        "edit_kinds": EDITS.values(),
        "classes": list(zip(context.get("class_names") or (), OKABE_ITO)),
        "style": svg.STYLE,
        "molecules": MOLECULE if any(panel["molecule"] for panel in panels) else "",
        "statuses": STATUSES,
        "verdicts": [(name, counts[name]) for name in STATUSES if counts[name]],
    }


def legend(kinds: set[str], context: Mapping[str, Any], target: str, marked: bool) -> list[tuple[str, str]]:
    """The style and the words of all that pictures show: the kinds of lines, what is explained, marked features."""
    rows = {
        ("chosen", "explanation"): "chosen" in kinds,
        ("true", "known truth"): bool(context.get("truth")),
        ("target", f"explained {target}"): bool(target),
        ("marked", "features in the explanation"): marked,
        **{(edit.past, edit.past): edit.past in kinds for edit in EDITS.values()},
    }
    return [names for names, is_there in rows.items() if is_there]


def _held(every: Sequence[Explanation]) -> list[tuple[str, dict[str, tuple[int, int, metrics.Estimate]]]]:
    """What explanations contain, how many of how many of each class do, and that share; nothing for a single one."""
    rows = shared(every)[:MAX_SHARED]
    made = [(content, {n: (*both, share(*both)) for n, both in by_class.items()}) for content, by_class in rows]
    return made if len(made) > 1 and len({e.key for e in every}) > 1 else []


def _gives_numbers(found: Explanations) -> bool:
    """Whether the model gives numbers: these have no probability and no true class."""
    return not any(output_kind(e.output).probability for e in found)


def _summary(name: str, found: Explanations) -> dict[str, Any]:
    """What the table of methods says of one."""
    status = Counter(e.status for e in found)
    return {
        "name": name,
        "n": len(found),
        "edited": all(map(adds_or_changes, found)),
        **metrics.intervals(found, found.context.get("truth")),
        "reached": sum(e.necessary for e in found),
        "both": sum(e.sufficient and e.necessary for e in found),
        "minimal": sum(bool(e.minimal) or bool(e.optimal) for e in found),
        "optimal": sum(bool(e.optimal) for e in found),
        "impossible": status["impossible"],
        "missed": status["not found"],
        "refused": status["refused"],
        "seconds": sum(e.seconds for e in found) / len(found),
    }


def row(e: Explanation, method: str) -> dict[str, Any]:
    """One line of the table, as plain values; a key is a list of ids, so that it sorts by number.

    Edits that add or change are no part of the graph, which could be sufficient alone: None.
    """
    return {
        "key": e.key if isinstance(e.key, tuple) else (e.key,),
        "method": method,
        "says": short_said(e),
        "p": round(float(e.probabilities[e.prediction]), 4),
        "true": None if e.label is None else class_name(e, e.label),
        "wrong": e.label is not None and e.label != e.prediction,
        "size": e.size,
        "edits": list_edits(e),
        "sufficient": None if adds_or_changes(e) else bool(e.sufficient),
        "necessary": bool(e.necessary),
        "status": e.status,
    }


def card(shown: Sequence[tuple[str, Explanation]]) -> dict[str, Any]:
    """One instance with a picture per method."""
    first, others = shown[0][1], [e for _, e in shown]
    return {
        "id": key_id(first.key),
        "prediction": describe_prediction(first),
        "panels": [_panel(name, e, others) for name, e in shown],
    }


def _panel(name: str, e: Explanation, others: Sequence[Explanation]) -> dict[str, Any]:
    drawn, words = scene(e, others), verdict_sentences(e)
    label = f"{describe_target(e)}, explained by {name}: " + " ".join(f"{s.head}: {s.text}" for s in words)
    return {
        "name": name,
        "picture": svg.picture(drawn, label) if len(drawn.nodes) else Markup(""),
        "bars": charts.said(e, said_rows(e)),
        "curve": charts.curve(e),
        "sentences": words,
        "caption": drawn.caption,
        "smarts": e.smarts,
        "smiles": entry(e.context.get("smiles"), e.key),
        "edited_smiles": e.edited_smiles,
        "size": count_units(e),
        "units": _listed(e),
        "edits": list_edits(e, MAX_LISTED),
        "molecule": drawn.molecule,
        "wide": drawn.has_edits and drawn.molecule,
        "drawn_as": [edit.past for edit in drawn.edit_kinds] if drawn.edited else ["chosen"][: len(drawn.nodes)],
        "marked": bool(drawn.marked.any()),
    }


def _listed(e: Explanation) -> list[tuple[str, list[str], int]]:
    """The chosen units by kind: the kind's name, the first units, and how many more there are."""
    parts = []
    for name in e.units.names:
        rows = e.units.where(name)
        rows = rows[e.selected[rows]]
        shown = [describe_unit(e, row) for row in rows[:MAX_LISTED].tolist()]
        parts += [(unit_words(name).plural.capitalize(), shown, len(rows) - len(shown))] if shown else []
    return parts
