"""The page before the first callback: the list, the graph, the panel beside it, and patterns and rules of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import dash_cytoscape
from dash import dcc, html
from markupsafe import Markup

from cf2.options import Edit as EditSort
from cf2.options import Key
from cf2.patterns.edit_rules import EditRule, EditRules
from cf2.patterns.pattern import Pattern
from cf2.patterns.pictures import edit_rule_sections, pattern_sections
from cf2.patterns.summary import Patterns
from cf2.report import charts
from cf2.report import pictures as svg
from cf2.report.words import class_name
from cf2.results.metrics import Estimate
from cf2.units.edits import EDITS, is_candidate
from cf2.web import navigation
from cf2.web.canvas import image
from cf2.web.whatif import WhatIf, first_answer, visible

# What the page remembers. Dash takes a store with None for one that has just been changed, and one without data not.
EMPTY_STORES = (
    "made",  # the key and the name of an explanation that was made on the page
    "ticked",
    "cancelled",
    "picked",  # the instance of the button that was pressed last, in the list or beside a pattern
    "wanted",  # the address that is asked for, by opening the page or by going back
    "restored",  # the same of a state of what is shown, by "Undo", "Redo" or by going back
    "address",  # of what is shown
    "scheme",  # light or dark
    "shown",  # the key and the name of an explanation
)
GRAPH_OPTIONS = {
    "layout": {"name": "preset", "fit": True, "padding": 24},
    "style": {"width": "100%", "height": "100%"},
    "minZoom": 0.1,
    "maxZoom": 2.5,
    "boxSelectionEnabled": False,
    "autoungrabify": True,
    "responsive": True,
}
STORES = {"opened": True, "answer-number": 0, "page": 0, "removed": [], "edits": []}


@dataclass(frozen=True, eq=False)
class Shared:
    """The patterns and the edit rules of a run, as far as it has any."""

    patterns: Patterns | None = None
    rules: EditRules | None = None


NOTHING = Shared()


def layout(whatif: WhatIf, notes: Sequence[str] = (), shared: Shared = NOTHING) -> Any:
    """All that is there before the first callback; the `notes` stand at the top, what a class shares at the end."""
    first = next(iter(whatif.keys))
    names = [name for name in whatif.explanations(whatif.key(first)) if name == first_answer(name)]
    methods = [html.Span("Explained by", id="method-label"), dcc.RadioItems(names, names[0], id="method", inline=True)]
    header = [
        html.H1(f"Explanations of {whatif.context.get('dataset') or 'a model'}"),
        html.Span(str(whatif.context.get("model") or ""), className="model"),
        html.Div(methods, className="methods"),
        html.P(visible(" ".join(notes)), className="notice", role="status", hidden=not notes),
    ]
    main = [
        html.Nav(_list(), **{"aria-label": "Instances"}),
        html.Section(_graph(whatif), id="graph", **{"aria-label": "Graph"}),
        html.Section(_panel(whatif), className="panel", **{"aria-label": "What if"}),
        html.Section([html.H2("Methods side by side"), html.Div(id="comparison")], className="comparison"),
        *_shared_sections(shared, whatif.keys),
    ]
    return html.Div(
        [
            html.A("Skip to the graph", href="#graph", className="skip"),
            html.Header(header),
            html.Main(main),
            dcc.Interval(id="ticking", interval=500, disabled=True),  # while something is explained
            *(dcc.Store(id=name) for name in EMPTY_STORES),
            *(dcc.Store(id=name, data=data) for name, data in (STORES | {"key": first}).items()),
            dcc.Download(id="download"),
        ],
        className="page noticed" if notes else "page",
    )


def _button(text: str, name: str, title: str | None = None, *, disabled: bool = False) -> Any:
    return html.Button(text, id=name, title=title, disabled=disabled)


def _labelled(text: str, control: Any, title: str | None = None) -> list[Any]:
    return [html.Label(text, htmlFor=control.id, title=title), control]


def _choice(name: str, table: Mapping[str, tuple[str, Any]], value: str) -> Any:
    options = [{"label": text, "value": key} for key, (text, _) in table.items()]
    return dcc.Dropdown(options, value, id=name, clearable=False, searchable=False)


def _id_field(name: str, placeholder: str = "node") -> Any:
    return dcc.Input(id=name, type="number", min=0, step=1, placeholder=placeholder)


def _notes(*names: str) -> list[Any]:
    return [html.Span(id=name, className="note", role="status") for name in names]


def _list() -> list[Any]:
    search = dcc.Input(id="search", type="text", placeholder="id", debounce=False, inputMode="numeric")
    filters = [
        *_labelled("Show", _choice("show", navigation.FILTERS, "all")),
        *_labelled("Sort by", _choice("sort", navigation.SORTS, "run")),
        *_labelled("Find", search),
    ]
    return [
        html.Div(filters, className="filters"),
        html.P(id="count", role="status"),
        html.Ul(id="list"),
        html.Div([_button("Previous", "previous"), html.Span(id="pages"), _button("Next", "next")], className="pager"),
    ]


def _stepper(what: str, shown: Any) -> list[Any]:
    """Buttons to what is before and after; between instances, the arrow keys go, too."""
    buttons = []
    for sign, word, key in (("‹", "Previous", "←"), ("›", "Next", "→")):
        title = f"{word} {what}" + (f" ({key})" if what == "instance" else "")
        buttons.append(html.Button(sign, id=f"{what}-{word.lower()}", title=title, **{"aria-label": f"{word} {what}"}))
    return [buttons[0], shown, buttons[1]]


def _graph(whatif: WhatIf) -> list[Any]:
    graph = dash_cytoscape.Cytoscape(id="cytoscape", elements=[], stylesheet=[], **GRAPH_OPTIONS)
    spoken = "The graph; click an edge to remove or restore it, two nodes to add one, or use the lists"
    return [
        html.Div(_stepper("instance", html.H2(id="prediction")), className="head"),
        html.P(id="address-note", className="note wrong", role="status"),
        html.Div(id="verdict", role="status"),
        html.Div(_stepper("answer", html.Span(id="answer-count")), id="answers", className="answers", hidden=True),
        html.Div(graph, className="canvas", role="img", **{"aria-label": spoken}),
        html.P([html.Span(text, className=f"key {kind}") for kind, text in _legend(whatif)], className="legend"),
        html.P(id="types", className="legend"),
        html.P(id="caption", className="note"),
    ]


def _legend(whatif: WhatIf) -> list[tuple[str, str]]:
    """The classes of what is drawn, as far as the run has it, with their words."""
    some = [next(iter(by_key.values())) for by_key in whatif.methods.values()]
    kinds = {name for e in some for name in e.units.names}
    rows = {
        ("chosen", "explanation"): True,
        ("true", "known truth"): whatif.context.get("truth"),
        ("target", f"explained {some[0].task}"): some[0].task != "graph",
        ("marked", "features in the explanation"): [
            name for name in kinds - {"edges", "nodes", "groups"} if not is_candidate(name)
        ],
        ("gone", "removed"): True,
        **{(edit.past, edit.past): True for edit in EDITS.values() if edit.unit_kind},
    }
    return [row for row, is_there in rows.items() if is_there]


def _panel(whatif: WhatIf) -> list[Any]:
    read_only = whatif.read_only
    tests = [
        _button("Show only the explanation", "only", disabled=read_only),
        _button("Remove the explanation", "without", disabled=read_only),
        _button("Restore all", "restore", disabled=read_only),
        _button("Undo", "undo", "Ctrl+Z", disabled=True),
        _button("Redo", "redo", "Ctrl+Y or Ctrl+Shift+Z", disabled=True),
    ]
    cancel = _button("Cancel", "cancel", disabled=True)
    save = [
        html.Span("Save", className="note"),
        _button("PNG", "png", "The picture as pixels"),
        _button("SVG", "svg", "The picture as lines and text"),
        _button("JSON", "json", "The state, with all that repeats it", disabled=read_only),
    ]
    return [
        html.Div(tests, className="buttons"),
        html.Div(id="answer", role="status", **{"aria-live": "polite"}),
        html.Details(_units(), open=True),
        html.Fieldset(_again(), className="again", disabled=read_only),
        html.Fieldset(_edit(whatif), className="again edit", disabled=read_only),
        html.Fieldset(_find(whatif), className="again find", disabled=read_only),
        html.Div(save, className="buttons"),
        html.Div([*_notes("search-progress", "search-note"), cancel], className="searching"),
    ]


def _units() -> list[Any]:
    near = dcc.Input(id="near", type="text", placeholder="any", inputMode="numeric")
    mark = html.Span("● is in the explanation", className="note")
    boxes = dcc.Checklist([], [], id="units", className="units")
    return [
        html.Summary("What is in the graph, one by one"),
        html.Div([*_labelled("At node", near), mark], className="near"),
        html.Div(boxes, className="lists", role="group", **{"aria-label": "What is present"}),
        html.P(id="unlisted", className="note"),
    ]


def _again() -> list[Any]:
    alpha = dcc.Input(id="alpha", type="number", min=0, max=1, step=0.05, value=0.6)
    lam = dcc.Input(id="lambda", type="number", min=0, step="any", placeholder="auto")
    return [
        html.Legend("Explain again"),
        *_labelled("α", alpha, "weight of sufficiency against necessity"),
        *_labelled("λ", lam, "weight of the two tests against size; empty: set by size"),
        _button("Explain", "again"),
        _button("Another explanation", "another"),
    ]


def _edit(whatif: WhatIf) -> list[Any]:
    """Where an edge is added and a feature changed: the ids are typed, or come from clicks on nodes."""
    atoms, column = whatif.atoms, _id_field("column", "feature")
    if atoms:
        elements = [{"label": atom, "value": number} for number, atom in enumerate(atoms)]
        column = dcc.Dropdown(elements, id="column", placeholder="element", searchable=False)
    value = dcc.Input(id="value", type="number", step="any", value=1)
    edge = [
        *_labelled("Edge from", _id_field("tail")),
        *_labelled("to", _id_field("head")),
        _button("Add edge", "add-edge"),
    ]
    feature = [
        *_labelled("Atom" if atoms else "Node", _id_field("node")),
        html.Label("becomes" if atoms else "feature", htmlFor="column"),
        html.Div(column, className="column"),
        html.Div(_labelled("=", value), className="value", hidden=bool(atoms)),
        _button("Change", "change-feature"),
    ]
    return [
        html.Legend("Add and change"),
        html.P("Click two nodes of the graph, or give their ids.", className="note"),
        html.Div(edge, className="line"),
        html.Div(feature, className="line"),
        dcc.Checklist([], [], id="edited", className="units"),
        *_notes("edit-note"),
    ]


def _find(whatif: WhatIf) -> list[Any]:
    """Where the smallest edit is asked for."""
    some = next(iter(next(iter(whatif.methods.values())).values()))
    names = [class_name(number, whatif.class_names) for number in range(len(some.probabilities))]
    classes = [{"label": name, "value": number} for number, name in enumerate(names)]
    valid = [{"label": "valid molecules only", "value": "molecule"}] if whatif.atoms else []
    return [
        html.Legend("Find the smallest edit to"),
        html.Div(dcc.Dropdown(classes, id="aim", placeholder="another class", searchable=False), className="aim"),
        dcc.Checklist(list(get_args(EditSort)), ["remove", "add"], id="sorts", inline=True),
        dcc.Checklist(valid, [], id="valid", inline=True),
        _button("Find", "find"),
    ]


# -- what the answers of a class share: patterns and edit rules


def _shared_sections(shared: Shared, keys: Mapping[str, Key]) -> list[Any]:
    """A section for the patterns and one for the rules; an instance of the page is a button that opens it."""
    made = []
    if shared.patterns:
        items = tuple(replace(found, pattern=_visible(found.pattern)) for found in shared.patterns)
        rows = pattern_sections(replace(shared.patterns, items=items))
        made.append(_section("What the model looks for", "patterns", "cover", rows, keys))
    if shared.rules:
        rules = tuple(replace(tried, rule=EditRule(tuple(map(_visible, tried.rule.pieces)))) for tried in shared.rules)
        rows = edit_rule_sections(replace(shared.rules, items=rules))
        made.append(_section("What would have to change", "rules", "turn", rows, keys))
    return made


def _visible(pattern: Pattern) -> Pattern:
    """The pattern with labels that can be displayed."""
    nodes, edges = (
        tuple(None if label is None else visible(label) for label in labels)
        for labels in (pattern.labels, pattern.edge_labels)
    )
    return replace(pattern, labels=nodes, edge_labels=edges)


def _section(title: str, name: str, verb: str, classes: list[dict[str, Any]], keys: Mapping[str, Key]) -> Any:
    parts: list[Any] = [html.H2(title)]
    for section in classes:
        share = f" Together they {verb} {_percent(section['together'])}." if section["together"] else ""
        joint = ", ".join(f"{what} {_percent(e)}" for what, e in (section.get("jointly") or {}).items())
        share += f" Where all of them are found: {joint}." if joint else ""
        parts += [html.H3(section["name"]), html.P(f"Tested on {section['tested']}.{share}", className="note")]
        parts.append(html.Div([_row(row, keys) for row in section["rows"]], className="patterns"))
    return html.Section(parts, id=name, className="shared", **{"aria-label": title})


def _row(row: dict[str, Any], keys: Mapping[str, Key]) -> Any:
    pictures = [Markup(f"{part}</svg>") for part in str(row["picture"]).split("</svg>") if part.strip()]
    bars = [
        html.Tr([html.Th(name, scope="row", title=tip), html.Td(html.Div(_whisker(e))), html.Td(_percent(e))])
        for name, tip, e in row["bars"]
    ]
    buttons = [html.Button(key["text"], **{"data-pick": key["id"]}) for key in row["keys"] if key["id"] in keys]
    more = f" and {row['more']} more" if row["more"] > 0 else ""
    words = [
        html.P([html.Code(row["text"]), f" {row['support']}"]),
        *([html.Table(html.Tbody(bars))] if bars else []),
        *([html.Div(["See ", *buttons, more], className="examples")] if buttons else []),
    ]
    drawn = html.Div([image(part, svg.STYLE, row["text"]) for part in pictures])
    return html.Article([drawn, html.Div(words)], className="pattern")


def _whisker(e: Estimate) -> Any:
    return image(charts.whisker(e.low, e.value, e.high), charts.STYLE, "", "whisker")


def _percent(e: Estimate) -> str:
    return f"{100 * e.value:.0f} % ({100 * e.low:.0f}–{100 * e.high:.0f})"
