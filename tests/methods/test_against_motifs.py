"""On small graphs with planted motifs, methods beat random and none beats the truth."""

from __future__ import annotations

from typing import Any

import pytest

import cf2
from cf2.methods import registry
from methods_toys import Toy, f1, toy

TUNED: dict[str, dict[str, Any]] = {
    "gnnexplainer": {"epochs": 200, "lr": 0.05, "edge_size": 0.02, "edge_entropy": 0.1},
    "cf-gnnexplainer": {"epochs": 150, "odds": True},
}


def explain(subject: Toy, method: str, **settings: Any) -> cf2.Explanations:
    return cf2.explain(subject.model, subject.data, subject.test, method=method, **settings)


# On houses, over five base models, random has an F1 of .10 to .21, and the least of a method here is .69. PGExplainer
# and TAGE fail on one of five base models: `test_trained.py` has models whose answer leaves no room for that.
@pytest.mark.parametrize("method", ["gnnexplainer", "gem", "rcexplainer", "gisst", "subgraphx", "gradient"])
def test_methods_lead_random_on_houses(method: str) -> None:
    subject = toy("houses", 0)
    options = {"seed": 0, "k": 6, **TUNED.get(method, {})}
    if registry.get(method).needs == "training":
        options["trained"] = cf2.fit(subject.model, subject.data, subject.learn, method=method, k=6)
    chance = f1(explain(subject, "random", k=6, seed=0), subject.truth)
    assert chance + 0.25 < f1(explain(subject, method, **options), subject.truth) <= 1.0


@pytest.mark.parametrize("kind", ["houses", "cycles"])
def test_counterfactuals_flip_and_lead_random_sets_of_their_size(kind: str) -> None:
    subject = toy(kind, 0)
    found = explain(subject, "cf-gnnexplainer", **TUNED["cf-gnnexplainer"])
    sizes = [e.size for e in found]
    assert sum(size > 0 for size in sizes) >= 0.9 * len(sizes)
    assert all(e.necessary for e in found if e.size)
    chance = f1(explain(subject, "random", k=max(1, round(sum(sizes) / len(sizes))), seed=0), subject.truth)
    assert f1(found, subject.truth) > 1.1 * chance
    assert cf2.metrics.pn(found) > cf2.metrics.pn(explain(subject, "random", k=max(sizes), seed=0))
