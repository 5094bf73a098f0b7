"""The callbacks that find and show an instance: the list, the address, the method, and the picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cf2.errors import CF2Error, require
from cf2.report.scene import is_molecule, scene
from cf2.report.words import adds_or_changes, atom_names, class_names, count_nouns, describe_prediction, key_id
from cf2.results.explanation import Explanation
from cf2.web import canvas, view
from cf2.web.address import place_of
from cf2.web.listing import chosen, page, page_of
from cf2.web.whatif import WhatIf, first_answer

CLIENT = "cf2"  # the functions in assets/page.js


def callbacks(app: Any, asked: WhatIf, run: str) -> None:
    """Have the list, the keys, the address and the choice of a method show an explanation."""
    _address_callbacks(app)
    _list_callbacks(app, asked)
    _pick_callbacks(app, asked, run)
    _method_callbacks(app, asked, run)
    _picture_callbacks(app, asked)


def _address_callbacks(app: Any) -> None:
    """What the browser does by itself: it reads and writes the address, and remembers what can be undone."""
    from dash import ClientsideFunction, Input, Output

    app.clientside_callback(
        ClientsideFunction(CLIENT, "start"),
        Output("wanted", "data"),
        Output("scheme", "data"),
        Input("visitor", "data"),
    )
    app.clientside_callback(
        ClientsideFunction(CLIENT, "record"),
        Output("undo", "disabled"),
        Output("redo", "disabled"),
        Input("address", "data"),
    )
    app.clientside_callback(
        ClientsideFunction(CLIENT, "step"),
        Output("restored", "data"),
        Input("undo", "n_clicks"),
        Input("redo", "n_clicks"),
        prevent_initial_call=True,
    )


def _known(asked: WhatIf, method: Any) -> list[Explanation]:
    """What the list shows of: all first answers of a method, or of the run's first one."""
    own = asked.methods.get(method) if isinstance(method, str) else None
    return list((own or next(iter(asked.methods.values()))).values())


def _list_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, State, ctx

    @app.callback(  # type: ignore[untyped-decorator]
        Output("list", "children"),
        Output("pages", "children"),
        Output("count", "children"),
        Output("place", "data"),
        Output("previous", "disabled"),
        Output("next", "disabled"),
        Input("show", "value"),
        Input("sort", "value"),
        Input("search", "value"),
        Input("previous", "n_clicks"),
        Input("next", "n_clicks"),
        Input("method", "value"),
        Input("key", "data"),
        State("place", "data"),
    )
    def fill(show: Any, sort: Any, search: Any, _p: Any, _n: Any, method: Any, key: Any, place: Any) -> Any:
        step = {"previous": -1, "next": 1}.get(ctx.triggered_id or "", 0)
        place = 0 if ctx.triggered_id in ("show", "sort", "search") else place
        require(isinstance(place, int), "Expected the number of a page", got=repr(place))
        known = _known(asked, method)
        if ctx.triggered_id in ("key", None):  # the page of the list on which the instance is
            place = page_of(known, key, show, sort, search, place)
        found = page(known, place + step, show, sort, search)
        names = class_names(asked.context)
        entries = [view.entry(e, names, key_id(e.key) == key) for e in found.items]
        where = f"{found.number + 1:,} of {found.pages:,}"
        text = f"{found.total:,} of {count_nouns(len(known), 'instance')}"
        return entries, where, text, found.number, found.number == 0, found.number + 1 >= found.pages


def _pick_callbacks(app: Any, asked: WhatIf, run: str) -> None:
    from dash import Input, Output, State, ctx, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("key", "data"),
        Output("address-note", "children"),
        Input("wanted", "data"),
        Input("picked", "data"),
        Input("instance-previous", "n_clicks"),
        Input("instance-next", "n_clicks"),
        Input("search", "n_submit"),
        State("key", "data"),
        State("method", "value"),
        State("show", "value"),
        State("sort", "value"),
        State("search", "value"),
    )
    def pick(wanted: Any, picked: Any, *given: Any) -> Any:
        key, method, show, sort, search = given[-5:]
        cause = ctx.triggered_id
        if cause in ("wanted", None):
            try:
                place = place_of(asked, run, wanted)
            except CF2Error as error:
                return key, str(error)
            return key if place is None else place.key, ""
        if cause == "picked":
            return key_id(asked.key(picked.get("key") if isinstance(picked, Mapping) else picked)), ""
        known = [key_id(e.key) for e in chosen(_known(asked, method), show, sort, search)]
        if cause == "search":
            return (known[0], "") if len(known) == 1 else (no_update, no_update)
        return _neighbour(known, key, 1 if cause == "instance-next" else -1), ""


def _neighbour(known: list[str], key: Any, step: int) -> Any:
    """The instance before or after one in the list; the one itself at its ends."""
    if key not in known:
        return known[0] if known else key
    return known[min(max(known.index(key) + step, 0), len(known) - 1)]


def _method_callbacks(app: Any, asked: WhatIf, run: str) -> None:
    from dash import Input, Output, State, ctx

    @app.callback(  # type: ignore[untyped-decorator]
        Output("method", "options"),
        Output("method", "value"),
        Output("answer-number", "data"),
        Input("key", "data"),
        Input("made", "data"),
        Input("wanted", "data"),
        Input("answer-previous", "n_clicks"),
        Input("answer-next", "n_clicks"),
        State("method", "value"),
        State("answer-number", "data"),
    )
    def choose(text: Any, made: Any, wanted: Any, _p: Any, _n: Any, method: Any, number: Any) -> Any:
        key, causes = asked.key(text), {name.split(".")[0] for name in ctx.triggered_prop_ids} or {"wanted"}
        number = _number(number)
        step = ("answer-next" in causes) - ("answer-previous" in causes)
        number = number + step if step else 0
        name = method
        # What was made for an instance that is not shown any more is found where that is shown.
        if "made" in causes and isinstance(made, Mapping) and made.get("key") == text:
            name, number = made.get("method"), -1
        elif "wanted" in causes and (place := _place(asked, run, wanted)) is not None and place.key == text:
            name, number = place.method, -1
        every = asked.explanations(key)
        name = name if isinstance(name, str) and name in every else next(iter(every))
        first = first_answer(name) if first_answer(name) in every else name
        answers = asked.answers(key, first) or [first]
        number = answers.index(name) if number < 0 and name in answers else min(max(number, 0), len(answers) - 1)
        return [one for one in every if one == first_answer(one) or first_answer(one) not in every], first, number

    @app.callback(  # type: ignore[untyped-decorator]
        Output("comparison", "children"), Input("key", "data"), Input("made", "data")
    )
    def compare(text: Any, made: Any) -> Any:
        return view.comparison(asked, asked.key(text))


def _number(value: Any) -> int:
    """The number of an answer from the browser; the first if there is none yet."""
    require(value is None or isinstance(value, int), "Expected the number of an answer", got=repr(value)[:40])
    return 0 if value is None else int(value)


def _place(asked: WhatIf, run: str, wanted: Any) -> Any:
    """What an address says, where it says something that is here."""
    try:
        return place_of(asked, run, wanted)
    except CF2Error:
        return None


def _picture_callbacks(app: Any, asked: WhatIf) -> None:
    from dash import Input, Output, no_update

    @app.callback(  # type: ignore[untyped-decorator]
        Output("cytoscape", "elements"),
        Output("cytoscape", "layout"),
        Output("prediction", "children"),
        Output("verdict", "children"),
        Output("types", "children"),
        Output("caption", "children"),
        Output("shown", "data"),
        Output("without", "children"),
        Output("answer-count", "children"),
        Output("answers", "hidden"),
        Output("answer-previous", "disabled"),
        Output("answer-next", "disabled"),
        Input("key", "data"),
        Input("method", "value"),
        Input("answer-number", "data"),
        Input("scheme", "data"),
    )
    def show(key: Any, method: Any, number: Any, scheme: Any) -> Any:
        every = asked.explanations(asked.key(key))
        number = _number(number)
        if not isinstance(method, str) or method not in every:
            return (no_update,) * 12  # the method belongs to another instance and is about to change
        answers = asked.answers(asked.key(key), method) or [method]
        number = min(max(number, 0), len(answers) - 1)
        name = answers[number]
        e = every[name]
        drawn = scene(e, asked.context_of(e), list(every.values()))
        names, atoms = class_names(asked.context), atom_names(asked.context)
        return (
            canvas.elements(e, drawn, (), atoms, scheme, is_molecule(asked.context)),
            {"name": "preset", "fit": True, "padding": 24, "instance": f"{key} {name} {scheme}"},
            describe_prediction(e, names),
            view.verdict(e, names, atoms),
            view.types(drawn),
            drawn.caption,
            {"key": key, "method": name},
            "Make the edits" if adds_or_changes(e) else "Remove the explanation",
            f"Answer {number + 1} of {len(answers)}",
            len(answers) < 2,
            number == 0,
            number + 1 >= len(answers),
        )
