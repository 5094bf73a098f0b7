"""What the answers of a class share: patterns and edit rules with their numbers, and a way to their instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from cf2.options import Key
from cf2.patterns.edit_rules import EditRule, EditRules
from cf2.patterns.pattern import Pattern
from cf2.patterns.pictures import edit_rule_sections, pattern_sections
from cf2.patterns.summary import Patterns
from cf2.report import charts
from cf2.report import pictures as svg
from cf2.results.metrics import Estimate
from cf2.web.labels import visible
from cf2.web.view import image


@dataclass(frozen=True, eq=False)
class Shared:
    """The patterns and the edit rules of a run, as far as it has any."""

    patterns: Patterns | None = None
    rules: EditRules | None = None


NOTHING = Shared()


def sections(shared: Shared, keys: Mapping[str, Key]) -> list[Any]:
    """A section for the patterns and one for the rules; an instance of the page is a button that opens it."""
    made = []
    if shared.patterns is not None and len(shared.patterns):
        shown = tuple(replace(one, pattern=_visible(one.pattern)) for one in shared.patterns)
        found = pattern_sections(replace(shared.patterns, items=shown))
        made.append(_section("What the model looks for", "patterns", "cover", found, keys))
    if shared.rules is not None and len(shared.rules):
        clear = tuple(replace(one, rule=EditRule(tuple(map(_visible, one.rule.pieces)))) for one in shared.rules)
        found = edit_rule_sections(replace(shared.rules, items=clear))
        made.append(_section("What would have to change", "rules", "turn", found, keys))
    return made


def _visible(pattern: Pattern) -> Pattern:
    """The pattern with labels that can be displayed."""
    nodes, edges = (
        tuple(None if label is None else visible(label) for label in labels)
        for labels in (pattern.labels, pattern.edge_labels)
    )
    return replace(pattern, labels=nodes, edge_labels=edges)


def _section(title: str, name: str, verb: str, found: list[dict[str, Any]], keys: Mapping[str, Key]) -> Any:
    from dash import html

    parts: list[Any] = [html.H2(title)]
    for section in found:
        together = section["together"]
        share = f" Together they {verb} {_percent(together)}." if together else ""
        joint = ", ".join(f"{what} {_percent(e)}" for what, e in (section.get("jointly") or {}).items())
        share += f" Where all of them are found: {joint}." if joint else ""
        parts += [html.H3(section["name"]), html.P(f"Tested on {section['tested']}.{share}", className="note")]
        rows = [_row(row, keys) for row in section["rows"]]
        parts.append(html.Div(rows, className="patterns"))
    return html.Section(parts, id=name, className="shared", **{"aria-label": title})


def _row(row: dict[str, Any], keys: Mapping[str, Key]) -> Any:
    from dash import html

    pictures = [Markup(f"{part}</svg>") for part in str(row["picture"]).split("</svg>") if part.strip()]
    bars = [
        html.Tr([html.Th(name, scope="row", title=tip), html.Td(html.Div(_whisker(e))), html.Td(_percent(e))])
        for name, tip, e in row["bars"]
    ]
    known = [one for one in row["keys"] if one["id"] in keys]
    buttons = [html.Button(one["text"], **{"data-pick": one["id"]}) for one in known]
    more = f" and {row['more']} more" if row["more"] > 0 else ""
    shown = [image(part, svg.STYLE, row["text"]) for part in pictures]
    words = [html.Code(row["text"]), f" {row['support']}"]
    examples = html.Div(["See ", *buttons, more], className="examples") if buttons else None
    table = html.Table(html.Tbody(bars)) if bars else None
    parts = [html.P(words), table, examples]
    return html.Article([html.Div(shown), html.Div([part for part in parts if part is not None])], className="pattern")


def _whisker(e: Estimate) -> Any:
    drawn = image(charts.whisker(e.low, e.value, e.high), charts.STYLE, "")
    drawn.className = "whisker"
    return drawn


def _percent(e: Estimate) -> str:
    return f"{100 * e.value:.0f} % ({100 * e.low:.0f}–{100 * e.high:.0f})"
