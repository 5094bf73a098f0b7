"""The callbacks that explain anew, one after the other: with other settings, or for the smallest edit to a class."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from cf2.errors import CF2Error, require
from cf2.report.words import (
    atom_names,
    class_names,
    count_nouns,
    count_units,
    describe_target,
    key_id,
    verdict_sentences,
)
from cf2.results.explanation import Explanation
from cf2.web.whatif import (
    GoOn,
    Queue,
    WhatIf,
    checked_aim,
    checked_lam,
    checked_number,
    checked_sorts,
    checked_visitor,
    explanation_shown,
    first_answer,
)

log = logging.getLogger("cf2.web")


def callbacks(app: Any, asked: WhatIf, queue: Queue) -> None:
    """Have the buttons "Explain", "Find" and "Cancel" do what they say."""
    _progress_callbacks(app, queue)
    _again_callbacks(app, asked, queue)
    _another_callbacks(app, asked, queue)
    _find_callbacks(app, asked, queue)
    _cancel_callbacks(app, queue)


def _running(names: Sequence[str], cancel: str, busy: str, queue: Queue) -> list[Any]:
    """What buttons show while one of them works."""
    from dash import Output

    text = f"Explaining, or waiting for others who do; at most {queue.seconds:g} s each."
    return [
        *((Output(name, "disabled"), True, False) for name in names),
        (Output(cancel, "disabled"), False, True),
        (Output("ticking", "disabled"), False, True),
        (Output(busy, "children"), text, ""),
    ]


def _progress_callbacks(app: Any, queue: Queue) -> None:
    """Have the page say how far it has come, as long as there is something to say."""
    from dash import Input, Output, State, set_props

    @app.callback(  # type: ignore[untyped-decorator]
        Output("ticked", "data"),
        Input("ticking", "n_intervals"),
        State("visitor", "data"),
        State("find-cancel", "disabled"),
        prevent_initial_call=True,
    )
    def tick(count: Any, visitor: Any, idle: Any) -> Any:
        if said := queue.progress(checked_visitor(visitor)):
            set_props("again-busy" if idle else "find-busy", {"children": said})
        return None


def _again_callbacks(app: Any, asked: WhatIf, queue: Queue) -> None:
    from dash import Input, Output, State

    @app.callback(  # type: ignore[untyped-decorator]
        Output("again-note", "children"),
        Input("again", "n_clicks"),
        State("visitor", "data"),
        State("shown", "data"),
        State("alpha", "value"),
        State("lambda", "value"),
        running=_running(("again", "another"), "cancel", "again-busy", queue),
        prevent_initial_call=True,
    )
    def again(_clicks: Any, visitor: Any, shown: Any, alpha: Any, lam: Any) -> Any:
        e, page = explanation_shown(asked, shown), checked_visitor(visitor)
        try:
            numbers = checked_number("α", alpha), checked_lam(lam)
        except CF2Error as error:
            return str(error)
        made = _made(asked, queue, page, e, lambda go_on: asked.again(e, *numbers, go_on))
        if not isinstance(made, Explanation):
            return made
        return f"{describe_target(e)}: {count_nouns(made.size, 'unit')} in {made.seconds:.1f} s"


def _another_callbacks(app: Any, asked: WhatIf, queue: Queue) -> None:
    from dash import Input, Output, State

    @app.callback(  # type: ignore[untyped-decorator]
        Output("another-note", "children"),
        Input("another", "n_clicks"),
        State("visitor", "data"),
        State("shown", "data"),
        running=_running(("again", "another"), "cancel", "again-busy", queue),
        prevent_initial_call=True,
    )
    def another(_clicks: Any, visitor: Any, shown: Any) -> Any:
        e, page = explanation_shown(asked, shown), checked_visitor(visitor)
        method = first_answer(shown["method"])
        made = _made(asked, queue, page, e, lambda go_on: asked.another(e, method, go_on))
        if made is None:
            return f"{describe_target(e)}: no other explanation was found."
        return made if isinstance(made, str) else f"{describe_target(e)}: another one, {count_units(made)}"


def _find_callbacks(app: Any, asked: WhatIf, queue: Queue) -> None:
    from dash import Input, Output, State

    @app.callback(  # type: ignore[untyped-decorator]
        Output("find-note", "children"),
        Input("find", "n_clicks"),
        State("visitor", "data"),
        State("shown", "data"),
        State("aim", "value"),
        State("sorts", "value"),
        State("valid", "value"),
        running=_running(("find",), "find-cancel", "find-busy", queue),
        prevent_initial_call=True,
    )
    def find(_clicks: Any, visitor: Any, shown: Any, aim: Any, sorts: Any, valid: Any) -> Any:
        e, page = explanation_shown(asked, shown), checked_visitor(visitor)
        require(valid in (None, [], ["molecule"]), "Expected a rule that this page has", got=type(valid).__name__)
        target = checked_aim(aim, len(e.probabilities))
        try:
            edits = checked_sorts(sorts)
        except CF2Error as error:
            return str(error)
        made = _made(asked, queue, page, e, lambda go_on: asked.smallest_edit(e, target, edits, bool(valid), go_on))
        if not isinstance(made, Explanation):
            return made
        first = verdict_sentences(made, class_names(asked.context), atom_names(asked.context))[0]
        return f"{describe_target(e)}: {first.head}: {first.text}"


def _made(
    asked: WhatIf, queue: Queue, page: str, e: Explanation, work: Callable[[GoOn], str]
) -> Explanation | str | None:
    """What `work` has made, once it is its turn, and shown on the page; or what went wrong; None where it made none."""
    from dash import set_props

    try:
        name = queue.run(page, work)
    except CF2Error as error:
        return str(error)
    except Exception as error:
        log.error("Failed to explain again", exc_info=error)
        return f"It failed, and the log says why: {error}"
    if not name:
        return None
    # Were this an output, Dash would hold back all that depends on it, and so every what-if, until it is there.
    set_props("made", {"data": {"key": key_id(e.key), "method": name}})
    return asked.explanation(e.key, name)


def _cancel_callbacks(app: Any, queue: Queue) -> None:
    from dash import Input, Output, State

    @app.callback(  # type: ignore[untyped-decorator]
        Output("cancelled", "data"),
        Input("cancel", "n_clicks"),
        Input("find-cancel", "n_clicks"),
        State("visitor", "data"),
        prevent_initial_call=True,
    )
    def cancel(_again: Any, _find: Any, visitor: Any) -> Any:
        return queue.cancel(checked_visitor(visitor))
