"""`cf2 demo`: the main job on an embedded data set, from a trained model to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cf2 import api, datasets, metrics, training
from cf2.explanation import Explanations
from cf2.report.html import write_report
from cf2.subjects import Subject, from_dataset

METHODS: dict[str, dict[str, Any]] = {
    "cf2": {},
    "cf2-relaxed": {"epochs": 300, "lam": 500.0},
    "gnnexplainer": {"epochs": 200, "k": 6},
    "cf-gnnexplainer": {"epochs": 200},
    "gradient": {"k": 6},
    "random": {"k": 6},
}


def subject(retrain: bool, out: Path, progress: Callable[[int], None]) -> Subject:
    """BA-Shapes with the shipped model, or with one that is trained now and saved beside the report."""
    if not retrain:
        return from_dataset("ba-shapes")
    model, about = training.train(
        datasets.load("ba-shapes"), progress=lambda epoch, epochs, loss, accuracy: progress(1)
    )
    training.save(out / "ba-shapes", model, about)
    return from_dataset("ba-shapes", checkpoint=out / "ba-shapes")


def compare(chosen: Subject, nodes: int, progress: Callable[[str, int], None]) -> Iterator[Explanations]:
    """Explain the same nodes by every method; each result comes with what a report needs."""
    keys = chosen.keys()[:nodes]
    context = chosen.context(keys)
    for method, settings in METHODS.items():
        seed = 0 if method == "random" else None
        found = api.explain(
            chosen.model,
            chosen.graphs[0],
            keys,
            method=method,
            seed=seed,
            progress=partial(progress, method),
            **settings,
        )
        yield Explanations(found.items, {**context, "method": method})


def row(chosen: Subject, found: Explanations) -> dict[str, Any]:
    """What the table says of one method."""
    masks = {e.key: chosen.truth(e.key) for e in found}
    about = metrics.evaluate(found, masks, chosen.graphs[0])
    return {"method": found.context["method"], **about}


def finish(results: list[Explanations], out: Path) -> Path:
    """Write the report about all methods."""
    return write_report(results, out / "report.html", title="cf2 demo: BA-Shapes")
