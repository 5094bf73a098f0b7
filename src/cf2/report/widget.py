"""A widget for notebooks: click edges or features to take them away, and the model answers through the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cf2.errors import CF2Error, extra, require
from cf2.models.outputs import output_kind
from cf2.report.plots import margin
from cf2.report.scene import scene
from cf2.report.words import class_names, describe_prediction, describe_said, describe_unit, verdict_sentences

if TYPE_CHECKING:
    from cf2.results.explanation import Explanation
    from cf2.results.explanations import Explanations

MAX_LISTED = 60  # units without a line in the picture that have a button
SCRIPT = Path(__file__).parent / "templates" / "widget.js"


def shown(e: Explanation) -> dict[str, Any]:
    """What the widget draws of an explanation: nodes, edges with their units, and the other units as buttons."""
    drawn = scene(e, e.context)
    size = np.maximum(np.ptp(drawn.points, axis=0), 1e-9) if len(drawn.points) else np.ones(2)
    points = (drawn.points - drawn.points.min(0)) / size.max() if len(drawn.points) else drawn.points
    labels = [label or drawn.text(node) for node, label in enumerate(drawn.labels or [""] * len(drawn.nodes))]
    lines = {int(unit) for unit in drawn.units if unit >= 0}
    rows = [*np.flatnonzero(e.selected).tolist(), *np.flatnonzero(~e.selected).tolist()]
    others = [row for row in rows if row not in lines][:MAX_LISTED]
    return {
        "nodes": [[float(x), float(y), label] for (x, y), label in zip(points, labels)],
        "edges": [[int(a), int(b), int(unit)] for (a, b), unit in zip(drawn.edges, drawn.units)],
        "targets": list(drawn.targets),
        "others": [[row, describe_unit(e, row)] for row in others],
        "chosen": np.flatnonzero(e.selected).tolist(),
        "title": describe_prediction(e, class_names(e.context)),
        "verdicts": [[s.tone, f"{s.head}: {s.text}"] for s in verdict_sentences(e, class_names(e.context))],
    }


def answer(e: Explanation, model: Any, data: Any, removed: list[int]) -> dict[str, Any]:
    """What the model says once these units are taken away, by plain code on the whole graph."""
    from cf2.runs.check import outputs_at

    good = all(isinstance(row, int) and 0 <= row < e.num_units for row in removed)
    require(good, f"Expected units below {e.num_units}", got=repr(removed)[:80])
    state = np.ones((1, e.num_units), dtype=bool)
    state[0, removed] = False
    (values,) = outputs_at(e, model, data, state)
    kept = bool(margin(e, values) > 0)
    kind = output_kind(e.output)
    text = describe_said(e, values, class_names(e.context))
    return {"text": f"The model says {text}.", "kept": kept, "values": values.tolist(), "axis": kind.axis}


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

        _esm = SCRIPT.read_text(encoding="utf-8")
        index = traitlets.Int(0).tag(sync=True)
        count = traitlets.Int(len(found)).tag(sync=True)
        removed = traitlets.List(traitlets.Int()).tag(sync=True)
        picture = traitlets.Dict().tag(sync=True)
        said = traitlets.Dict().tag(sync=True)

        @traitlets.observe("index")  # type: ignore[untyped-decorator]
        def _turn(self, change: Any = None) -> None:
            self.index = self.index % len(found)
            self.picture, self.removed = shown(found[self.index]), []
            self._ask()

        @traitlets.observe("removed")  # type: ignore[untyped-decorator]
        def _ask(self, change: Any = None) -> None:
            self.said = answer(found[self.index], model, data, list(self.removed))

    made = ExplanationWidget()
    made._turn()
    return made
