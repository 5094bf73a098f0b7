"""A widget for notebooks: click edges or features to take them away, and the model answers through the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from cf2.errors import CF2Error, extra, require
from cf2.report import environment, live
from cf2.report.html import STYLE
from cf2.report.plots import margin
from cf2.report.scene import scene
from cf2.report.words import class_names, describe_prediction

if TYPE_CHECKING:
    from cf2.results.explanation import Explanation
    from cf2.results.explanations import Explanations


def answer(e: Explanation, model: Any, data: Any, removed: list[int]) -> live.Said:
    """What the model says once these units are taken away, by plain code on the whole graph."""
    from cf2.runs.check import outputs_at

    good = all(isinstance(row, int) and 0 <= row < e.num_units for row in removed)
    require(good, f"Expected units below {e.num_units}", got=repr(removed)[:80])
    state = np.ones((1, e.num_units), dtype=bool)
    state[0, removed] = False
    (values,) = outputs_at(e, model, data, state)
    return live.Said({"as it is": e.probabilities, "what is left": values}, not margin(e, values) > 0)


def html(e: Explanation, said: live.Said, removed: list[int], place: tuple[int, int]) -> str:
    """What the widget shows of an explanation; `place` is its number and how many there are."""
    gone = np.isin(np.arange(e.num_units), removed)
    parts = {
        "title": describe_prediction(e, class_names(e.context)),
        "picture": live.picture_html(scene(e, e.context), e, e.context, gone) if e.task != "input" else "",
        "verdicts": Markup(live.verdicts_html(e, e.context)),
        "answer": Markup(live.answer_html(e, said, e.context)),
        "units": Markup(live.units_html(e, live.listed_units(e), gone, e.context)),
        "number": place[0],
        "count": place[1],
    }
    return str(environment().get_template("widget.html").render(**parts, style=STYLE))


def widget(found: Explanations, model: Any, data: Any) -> Any:
    """The widget of many explanations, as `Explanations.widget` describes it."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise CF2Error("Expected anywidget for a widget", got="no such package", do=extra("notebook")) from error
    require(len(found) > 0, "Expected at least one explanation to show", got="none")

    class ExplanationWidget(anywidget.AnyWidget):  # type: ignore[misc]
        """The explanation at `index`, without the units in `removed`, and what the model says then."""

        _esm = environment().get_template("widget.js").render()
        index = traitlets.Int(0).tag(sync=True)
        count = traitlets.Int(len(found)).tag(sync=True)
        removed = traitlets.List(traitlets.Int()).tag(sync=True)
        html = traitlets.Unicode().tag(sync=True)

        @traitlets.observe("index")  # type: ignore[untyped-decorator]
        def _turn(self, change: Any = None) -> None:
            self.index, self.removed = self.index % len(found), []
            self._ask()

        @traitlets.observe("removed")  # type: ignore[untyped-decorator]
        def _ask(self, change: Any = None) -> None:
            e, removed = found[self.index], list(self.removed)
            said = answer(e, model, data, removed)
            self.html = html(e, said, removed, (self.index + 1, len(found)))

    made = ExplanationWidget()
    made._turn()
    return made
