"""The page's frame: the list, the graph, what the model says, and the methods side by side."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, get_args

from cf2.options import Edit
from cf2.report.words import atom_names, class_name, class_names
from cf2.units.edits import EDITS, is_candidate
from cf2.web import summary
from cf2.web.labels import visible
from cf2.web.summary import NOTHING, Shared
from cf2.web.view import FILTER_CHOICES, SORT_CHOICES
from cf2.web.whatif import WhatIf, first_answer


def layout(asked: WhatIf, notes: Sequence[str] = (), shared: Shared = NOTHING) -> Any:
    """All that is there before the first callback; the `notes` stand at the top, what a class shares at the end."""
    from dash import dcc, html

    first = next(iter(asked.keys))
    title = asked.context.get("dataset") or "a model"
    model = asked.context.get("model")
    return html.Div(
        [
            html.A("Skip to the graph", href="#graph", className="skip"),
            html.Header(
                [
                    html.H1(f"Explanations of {title}"),
                    html.Span(str(model) if model else "", className="model"),
                    html.Div(_methods(asked, first), className="methods"),
                    html.P(visible(" ".join(notes)), className="notice", role="status", hidden=not notes),
                ]
            ),
            html.Main(
                [
                    html.Nav(_list(), **{"aria-label": "Instances"}),
                    html.Section(_graph(asked), id="graph", **{"aria-label": "Graph"}),
                    html.Section(_panel(asked), className="panel", **{"aria-label": "What if"}),
                    html.Section([html.H2("Methods side by side"), html.Div(id="comparison")], className="comparison"),
                    *summary.sections(shared, asked.keys),
                ]
            ),
            # Every page that is opened has a name, by which it can cancel what it has asked for.
            dcc.Store(id="visitor", data=secrets.token_hex(8)),
            dcc.Store(id="made"),
            dcc.Interval(id="ticking", interval=500, disabled=True),  # while something is explained
            dcc.Store(id="ticked"),
            dcc.Store(id="cancelled"),
            dcc.Store(id="picked"),  # the instance of the button that was pressed last, in the list or beside a pattern
            dcc.Store(id="wanted"),  # the address that is asked for, by opening the page or by going back
            dcc.Store(id="restored"),  # the same of a state of what is shown, by "Undo", "Redo" or by going back
            dcc.Store(id="address"),  # of what is shown
            dcc.Store(id="scheme"),
            dcc.Store(id="answer-number", data=0),
            dcc.Store(id="key", data=first),
            dcc.Store(id="place", data=0),
            dcc.Store(id="shown"),
            dcc.Store(id="removed", data=[]),
            dcc.Store(id="edits", data=[]),
            dcc.Download(id="download"),
            dcc.Download(id="download-svg"),
        ],
        className="page noticed" if notes else "page",
    )


def _methods(asked: WhatIf, key: str) -> list[Any]:
    from dash import dcc, html

    names = [name for name in asked.explanations(asked.key(key)) if name == first_answer(name)]
    return [html.Span("Explained by", id="method-label"), dcc.RadioItems(names, names[0], id="method", inline=True)]


def _list() -> list[Any]:
    from dash import dcc, html

    return [
        html.Div(
            [
                html.Label("Show", htmlFor="show"),
                dcc.Dropdown(FILTER_CHOICES, "all", id="show", clearable=False, searchable=False),
                html.Label("Sort by", htmlFor="sort"),
                dcc.Dropdown(SORT_CHOICES, "run", id="sort", clearable=False, searchable=False),
                html.Label("Find", htmlFor="search"),
                dcc.Input(id="search", type="text", placeholder="id", debounce=False, inputMode="numeric"),
            ],
            className="filters",
        ),
        html.P(id="count", role="status"),
        html.Ul(id="list"),
        html.Div(
            [html.Button("Previous", id="previous"), html.Span(id="pages"), html.Button("Next", id="next")],
            className="pager",
        ),
    ]


def _graph(asked: WhatIf) -> list[Any]:
    import dash_cytoscape
    from dash import html

    return [
        html.Div(
            [
                html.Button(
                    "‹", id="instance-previous", title="Previous instance (←)", **{"aria-label": "Previous instance"}
                ),
                html.H2(id="prediction"),
                html.Button("›", id="instance-next", title="→", **{"aria-label": "Next instance"}),
            ],
            className="head",
        ),
        html.P(id="address-note", className="note wrong", role="status"),
        html.Div(id="verdict", role="status"),
        html.Div(
            [
                html.Button("‹", id="answer-previous", **{"aria-label": "Previous answer"}),
                html.Span(id="answer-count"),
                html.Button("›", id="answer-next", **{"aria-label": "Next answer"}),
            ],
            id="answers",
            className="answers",
            hidden=True,
        ),
        html.Div(
            dash_cytoscape.Cytoscape(
                id="cytoscape",
                elements=[],
                stylesheet=[],
                layout={"name": "preset", "fit": True, "padding": 24},
                style={"width": "100%", "height": "100%"},
                minZoom=0.1,
                maxZoom=2.5,
                boxSelectionEnabled=False,
                autoungrabify=True,
                responsive=True,
            ),
            className="canvas",
            role="img",
            **{
                "aria-label": "The graph; click an edge to remove or restore it, two nodes to add one, or use the lists"
            },
        ),
        html.P([html.Span(text, className=f"key {kind}") for kind, text in _legend(asked)], className="legend"),
        html.P(id="types", className="legend"),
        html.P(id="caption", className="note"),
    ]


def _legend(asked: WhatIf) -> list[tuple[str, str]]:
    known = [("chosen", "explanation")]
    known += [("true", "known truth")] if asked.context.get("truth") else []
    some = [next(iter(by_key.values())) for by_key in asked.methods.values()]
    known += [("target", f"explained {some[0].task}")] if some[0].task != "graph" else []
    kinds = {name for e in some for name in e.units.names}
    known += (
        [("marked", "features in the explanation")]
        if not all(name in ("edges", "nodes", "groups") or is_candidate(name) for name in kinds)
        else []
    )
    return [*known, ("gone", "removed"), *((edit.past, edit.past) for edit in EDITS.values() if edit.unit_kind)]


def _panel(asked: WhatIf) -> list[Any]:
    from dash import html

    read_only = asked.read_only
    return [
        html.Div(
            [
                html.Button("Show only the explanation", id="only", disabled=read_only),
                html.Button("Remove the explanation", id="without", disabled=read_only),
                html.Button("Restore all", id="restore", disabled=read_only),
                html.Button("Undo", id="undo", disabled=True, title="Ctrl+Z"),
                html.Button("Redo", id="redo", disabled=True, title="Ctrl+Y or Ctrl+Shift+Z"),
            ],
            className="buttons",
        ),
        html.Div(id="answer", role="status", **{"aria-live": "polite"}),
        html.Details(_units(), open=True),
        html.Fieldset(_again(), className="again", disabled=read_only),
        html.Fieldset(_edit(asked), className="again edit", disabled=read_only),
        html.Fieldset(_find(asked), className="again find", disabled=read_only),
        html.Div(
            [
                html.Span("Save", className="note"),
                html.Button("PNG", id="png", title="The picture as pixels"),
                html.Button("SVG", id="svg", title="The picture as lines and text"),
                html.Button("JSON", id="json", title="The state, with all that repeats it", disabled=read_only),
            ],
            className="buttons",
        ),
    ]


def _units() -> list[Any]:
    from dash import dcc, html

    return [
        html.Summary("What is in the graph, one by one"),
        html.Div(
            [
                html.Label("At node", htmlFor="near"),
                dcc.Input(id="near", type="text", placeholder="any", inputMode="numeric"),
                html.Span("● is in the explanation", className="note"),
            ],
            className="near",
        ),
        html.Div(
            dcc.Checklist([], [], id="units", className="units"),
            className="lists",
            role="group",
            **{"aria-label": "What is present"},
        ),
        html.P(id="unlisted", className="note"),
    ]


def _again() -> list[Any]:
    from dash import dcc, html

    return [
        html.Legend("Explain again"),
        html.Label("α", htmlFor="alpha", title="weight of sufficiency against necessity"),
        dcc.Input(id="alpha", type="number", min=0, max=1, step=0.05, value=0.6),
        html.Label("λ", htmlFor="lambda", title="weight of the two tests against size; empty: set by size"),
        dcc.Input(id="lambda", type="number", min=0, step="any", placeholder="auto"),
        html.Button("Explain", id="again"),
        html.Button("Another explanation", id="another"),
        html.Button("Cancel", id="cancel", disabled=True),
        html.Span(id="again-busy", className="note", role="status"),
        html.Span(id="again-note", className="note", role="status"),
        html.Span(id="another-note", className="note", role="status"),
    ]


def _edit(asked: WhatIf) -> list[Any]:
    """Where an edge is added and a feature changed: the ids are typed, or come from clicks on nodes."""
    from dash import dcc, html

    atoms = atom_names(asked.context)
    column: Any = dcc.Input(id="column", type="number", min=0, step=1, placeholder="feature")
    if atoms:
        choices = [{"label": atom, "value": place} for place, atom in enumerate(atoms)]
        column = dcc.Dropdown(choices, id="column", placeholder="element", searchable=False)
    value = dcc.Input(id="value", type="number", step="any", value=1)
    return [
        html.Legend("Add and change"),
        html.P("Click two nodes of the graph, or give their ids.", className="note"),
        html.Div(
            [
                html.Label("Edge from", htmlFor="tail"),
                dcc.Input(id="tail", type="number", min=0, step=1, placeholder="node"),
                html.Label("to", htmlFor="head"),
                dcc.Input(id="head", type="number", min=0, step=1, placeholder="node"),
                html.Button("Add edge", id="add-edge"),
            ],
            className="line",
        ),
        html.Div(
            [
                html.Label("Atom" if atoms else "Node", htmlFor="node"),
                dcc.Input(id="node", type="number", min=0, step=1, placeholder="node"),
                html.Label("becomes" if atoms else "feature", htmlFor="column"),
                html.Div(column, className="column"),
                html.Div([html.Label("=", htmlFor="value"), value], className="value", hidden=bool(atoms)),
                html.Button("Change", id="change-feature"),
            ],
            className="line",
        ),
        dcc.Checklist([], [], id="edited", className="units"),
        html.Span(id="edit-note", className="note", role="status"),
    ]


def _find(asked: WhatIf) -> list[Any]:
    """Where the smallest edit is asked for."""
    from dash import dcc, html

    some = next(iter(next(iter(asked.methods.values())).values()))
    names = class_names(asked.context)
    classes = [{"label": class_name(number, names), "value": number} for number in range(len(some.probabilities))]
    sorts = [{"label": text, "value": text} for text in get_args(Edit)]
    valid = [{"label": "valid molecules only", "value": "molecule"}] if atom_names(asked.context) else []
    return [
        html.Legend("Find the smallest edit to"),
        html.Div(dcc.Dropdown(classes, id="aim", placeholder="another class", searchable=False), className="aim"),
        dcc.Checklist(sorts, ["remove", "add"], id="sorts", inline=True),
        dcc.Checklist(valid, [], id="valid", inline=True),
        html.Button("Find", id="find"),
        html.Button("Cancel", id="find-cancel", disabled=True),
        html.Span(id="find-busy", className="note", role="status"),
        html.Span(id="find-note", className="note", role="status"),
    ]
