"""`cf2 demo`: the main job on an embedded data set, from a trained model to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any

from cf2.methods import registry
from cf2.options import Spec
from cf2.results import metrics
from cf2.results.explanations import Explanations
from cf2.runs.comparison import rule_of
from cf2.runs.session import Session
from cf2.runs.source import ModelAndData
from cf2.samples.datasets import paper_settings

DATASET, REPORT = "ba-shapes", "report.html"


def methods() -> list[str]:
    """The methods that need nothing beside the model, score edges, and are quick: a `budget` is what dear ones have."""
    known = [registry.get(name) for name in registry.names()]
    quick = [m for m in known if "budget" not in {f.name for f in fields(m.settings)}]
    return [m.name for m in quick if m.needs == "nothing" and (m.units is None or "edges" in m.units)]


def compare(source: ModelAndData, nodes: int, progress: Callable[[str, int], None]) -> Iterator[Explanations]:
    """Explain the same nodes by every method, with the paper's settings; each result has what a report needs."""
    keys = source.keys()[:nodes]
    context = source.context(keys)
    for method in methods():
        spec = Spec(method=method, seed=registry.draw_seed(method, None), settings=paper_settings(method, DATASET))
        request = source.request(keys, spec)
        with Session(request) as session:
            found = session.explain(keys, partial(progress, method))
        yield Explanations(tuple(found), context | request.context())


def row(found: Explanations) -> dict[str, Any]:
    """What the table says of one method."""
    scores = metrics.evaluate(found, found.context["truth"])
    method = found.context["method"]
    rule = rule_of((), Spec.from_json(found.context["spec"]))
    about = {"method": method, "label": method, **({"rule": rule} if rule else {})}
    return {**about, **scores, "found": metrics.answered(found)}
