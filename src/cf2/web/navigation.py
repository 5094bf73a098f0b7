"""Which explanation is shown: the list of instances, the buttons and keys, the address, the method and its answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dash import ClientsideFunction, Input, Output, State, ctx, html, no_update

from cf2.errors import CF2Error, require, shown
from cf2.options import Key
from cf2.report.words import adds_or_changes, count_nouns, describe_said, describe_target, key_id, short_said
from cf2.results.explanation import Explanation
from cf2.web.whatif import State as PageState
from cf2.web.whatif import WhatIf, first_answer

PAGE_LENGTH = 20
MAX_NUMBER = 2**53  # JavaScript has no larger whole numbers

FILTERS: dict[str, tuple[str, Callable[[Explanation], bool]]] = {
    "all": ("all", lambda e: True),
    "both": ("sufficient and necessary", lambda e: e.sufficient and e.necessary),
    "unnecessary": ("failed necessity", lambda e: not e.necessary),
    "insufficient": ("failed sufficiency", lambda e: not e.sufficient),
    "wrong": ("misclassified", lambda e: e.label is not None and e.label != e.prediction),
    "open": ("impossible, not found or refused", lambda e: e.status in ("impossible", "not found", "refused")),
}
SORTS: dict[str, tuple[str, Callable[[Explanation], Any]]] = {
    "run": ("order of the run", lambda e: 0),
    "largest": ("largest first", lambda e: -e.size),
    "smallest": ("smallest first", lambda e: e.size),
    "unsure": ("least sure first", lambda e: float(e.probabilities[e.prediction])),
    "key": ("instance", lambda e: _ids(e.key)),
}
# What the browser does by itself, in assets/page.js: it reads and writes the address, and remembers what can be undone.
IN_BROWSER = {
    "start": ("wanted.data scheme.data", "opened.data"),
    "record": ("undo.disabled redo.disabled", "address.data"),
    "step": ("restored.data", "undo.n_clicks redo.n_clicks"),
}

Given = dict[str, Any]  # what the browser sends: values by 'id.property'
Shape = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return type(value) is int and abs(value) < MAX_NUMBER


def _list(of: Shape) -> Shape:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _holds(**parts: Shape) -> Shape:
    return lambda value: isinstance(value, dict) and all(name in value and parts[name](value[name]) for name in parts)


# What a browser may send; None is always allowed, and what is not listed is checked where it is used.
SHAPES: dict[str, Shape] = {
    **dict.fromkeys(("key.data", "method.value", "search.value", "near.value"), _text),
    **dict.fromkeys(("page.data", "answer-number.data"), _number),
    **dict.fromkeys(("removed.data", "units.value", "edited.value"), _list(_number)),
    "sorts.value": _list(_text),
    **dict.fromkeys(("shown.data", "made.data"), _holds(key=_text, method=_text)),
    **dict.fromkeys(("wanted.data", "restored.data"), _holds(address=_text)),
    "picked.data": _holds(key=_text),
    "edits.data": _list(lambda edit: isinstance(edit, list) and len(edit) > 0),
    "cytoscape.tapEdge": _holds(data=lambda data: isinstance(data, dict) and _number(data.get("unit", 0))),
    "cytoscape.tapNode": _holds(data=_holds(node=_number)),
    "show.value": lambda value: _text(value) and value in FILTERS,
    "sort.value": lambda value: _text(value) and value in SORTS,
    "scheme.data": lambda value: value in ("light", "dark"),
}
NEEDED = ("show.value", "sort.value", "page.data")  # the page always has these


class Callback(NamedTuple):
    """A function of what the browser sends, and the components by name: what it fills, what calls it, what it needs."""

    function: Callable[[WhatIf, Given], Any]
    outputs: str
    inputs: str
    state: str
    options: dict[str, Any]

    def connect(self, app: Any, whatif: WhatIf) -> None:
        """Have the function answer the browser."""
        names, outputs = [*self.inputs.split(), *self.state.split()], _components(Output, self.outputs)
        asked = _components(Input, self.inputs), _components(State, self.state)

        causes: set[str | None] = {name.split(".")[0] for name in self.inputs.split()}
        causes |= set() if self.options["prevent_initial_call"] else {None}

        def answer(*values: Any) -> Any:
            require(ctx.triggered_id in causes, "Expected a part of the page", got=shown(ctx.triggered_id, 80))
            for name, value in zip(names, values):
                good = name not in SHAPES or (value is None and name not in NEEDED) or SHAPES[name](value)
                require(good, f"Expected what the page sends as {name!r}", got=shown(value, 80))
            return self.function(whatif, dict(zip(names, values)))

        app.callback(outputs if len(outputs) > 1 else outputs[0], *asked, **self.options)(answer)


def callback(
    outputs: str, inputs: str, state: str = "", *, at_start: bool = True, **options: Any
) -> Callable[[Callable[[WhatIf, Given], Any]], Callback]:
    """Make a function a callback of the page; names are 'id.property', with spaces between them."""
    options["prevent_initial_call"] = not at_start
    return lambda function: Callback(function, outputs, inputs, state, options)


def connect(app: Any, whatif: WhatIf, *modules: Any) -> None:
    """Have the callbacks of modules, and those in the browser, fill the page."""
    for name, (outputs, inputs) in IN_BROWSER.items():
        components = *_components(Output, outputs), *_components(Input, inputs)
        app.clientside_callback(ClientsideFunction("cf2", name), *components, prevent_initial_call=name == "step")
    for part in (part for module in modules for part in vars(module).values()):
        if isinstance(part, Callback):
            part.connect(app, whatif)


def _components(kind: Any, names: str) -> list[Any]:
    return [kind(*name.split(".")) for name in names.split()]


# -- the list of instances


@callback(
    "list.children pages.children count.children page.data previous.disabled next.disabled",
    "show.value sort.value search.value previous.n_clicks next.n_clicks method.value key.data",
    "page.data",
)
def fill(whatif: WhatIf, given: Given) -> Any:
    cause, key = ctx.triggered_id, given["key.data"]
    candidates, listed = _listed(whatif, given)
    page = 0 if cause in ("show", "sort", "search") else given["page.data"]
    if cause in ("key", None):  # the page of the list on which the instance is
        page = next((at // PAGE_LENGTH for at, e in enumerate(listed) if key_id(e.key) == key), page)
    pages = max(1, -(-len(listed) // PAGE_LENGTH))
    page = min(max(page + {"previous": -1, "next": 1}.get(cause or "", 0), 0), pages - 1)
    shown = listed[page * PAGE_LENGTH : (page + 1) * PAGE_LENGTH]
    return (
        [_entry(e, whatif.class_names, key_id(e.key) == key) for e in shown],
        f"{page + 1:,} of {pages:,}",
        f"{len(listed):,} of {count_nouns(len(candidates), 'instance')}",
        page,
        page == 0,
        page + 1 >= pages,
    )


def _listed(whatif: WhatIf, given: Given) -> tuple[list[Explanation], list[Explanation]]:
    """All first answers of a method, or of the run's first one; and those that are listed, in their order."""
    candidates = list((whatif.methods.get(given["method.value"]) or next(iter(whatif.methods.values()))).values())
    return candidates, matching(candidates, given["show.value"], given["sort.value"], given["search.value"])


def matching(candidates: Sequence[Explanation], show: str, sort: str, search: str | None) -> list[Explanation]:
    """All that pass the filter and the search, in their order."""
    wanted = search_ids(search)
    found = [e for e in candidates if (not wanted or _ids(e.key) == wanted) and FILTERS[show][1](e)]
    return sorted(found, key=SORTS[sort][1])


def search_ids(text: str | None) -> tuple[int, ...]:
    """The ids that are looked for: none for an empty field; (-1,), which no instance has, for text without any.

    >>> search_ids("17"), search_ids("(3, 17)"), search_ids("x"), search_ids(" ")
    ((17,), (3, 17), (-1,), ())
    """
    if not (text or "").strip():
        return ()
    return tuple(map(int, re.findall(r"[0-9]+", str(text)))) or (-1,)


def _ids(key: Key) -> tuple[int, ...]:
    return key if isinstance(key, tuple) else (key,)


def _entry(e: Explanation, names: Sequence[str] | None, current: bool) -> Any:
    """One line of the list: a button."""
    tests = [("S", e.sufficient, "sufficient"), ("N", e.necessary, "necessary")]
    if adds_or_changes(e):
        tests = [("E", e.necessary, "changed by edits")]
    marks = [html.Span(f"{text}{'✓' if good else '✗'}", className="yes" if good else "no") for text, good, _ in tests]
    spoken = ", ".join(f"{'' if good else 'not '}{word}" for _, good, word in tests)
    wrong = e.label is not None and e.label != e.prediction
    said = describe_said(e, e.probabilities, names)
    label = f"{describe_target(e)}: {said}{', misclassified' if wrong else ''}, {spoken}, size {e.size}"
    columns = {"name": describe_target(e), "said": short_said(e, names), "marks": marks, "size": e.size}
    return html.Li(
        html.Button(
            [html.Span(content, className=name) for name, content in columns.items()],
            className="entry" + (" current" if current else "") + (" wrong" if wrong else ""),
            **{"data-pick": key_id(e.key), "aria-label": label, "aria-current": "true" if current else "false"},
        )
    )


# -- the instance, the method and the answer that are shown


@callback(
    "key.data address-note.children",
    "wanted.data picked.data instance-previous.n_clicks instance-next.n_clicks search.n_submit",
    "key.data method.value show.value sort.value search.value",
)
def pick(whatif: WhatIf, given: Given) -> Any:
    key, cause = given["key.data"], ctx.triggered_id
    if cause in ("wanted", None):
        try:
            state = whatif.state_at((given["wanted.data"] or {}).get("address", ""))
        except CF2Error as error:
            return key, str(error)
        return key if state is None else state.key, ""
    if cause == "picked":
        return key_id(whatif.key((given["picked.data"] or {}).get("key", ""))), ""
    keys = [key_id(e.key) for e in _listed(whatif, given)[1]]
    if cause == "search":
        return (keys[0], "") if len(keys) == 1 else (no_update, no_update)
    if key not in keys:
        return (keys or [key])[0], ""
    step = 1 if cause == "instance-next" else -1
    return keys[min(max(keys.index(key) + step, 0), len(keys) - 1)], ""


def wanted_state(whatif: WhatIf, wanted: Mapping[str, Any] | None) -> PageState | None:
    """What an address says; None where it means nothing here, which is said where the instance is looked for."""
    try:
        return whatif.state_at((wanted or {}).get("address", ""))
    except CF2Error:
        return None


@callback(
    "method.options method.value answer-number.data",
    "key.data made.data wanted.data answer-previous.n_clicks answer-next.n_clicks",
    "method.value answer-number.data",
)
def choose(whatif: WhatIf, given: Given) -> Any:
    text, made, name = given["key.data"], given["made.data"] or {}, given["method.value"]
    causes = {name.split(".")[0] for name in ctx.triggered_prop_ids} or {"wanted"}
    step = ("answer-next" in causes) - ("answer-previous" in causes)
    number = (given["answer-number.data"] or 0) + step if step else 0
    wanted = wanted_state(whatif, given["wanted.data"]) if "wanted" in causes else None
    # What was made for an instance that is not shown any more is found where that is shown.
    if "made" in causes and made and made["key"] == text:
        name, number = made["method"], -1
    elif wanted is not None and wanted.key == text:
        name, number = wanted.method, -1
    key = whatif.key(text)
    names = list(whatif.explanations(key))
    name = name if name in names else names[0]
    first = first_answer(name) if first_answer(name) in names else name
    answers = whatif.answers(key, first) or [first]
    number = answers.index(name) if number < 0 and name in answers else min(max(number, 0), len(answers) - 1)
    options = [name for name in names if name == first_answer(name) or first_answer(name) not in names]
    return options, first, number
