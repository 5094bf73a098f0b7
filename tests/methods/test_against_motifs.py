"""On small graphs with planted motifs, methods beat random and none beats the truth."""

from __future__ import annotations

from typing import Any

import pytest

import cf2
from cf2.methods import registry
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset
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
def test_truth_is_the_upper_line(kind: str) -> None:
    subject = toy(kind, 0)
    assert f1(explain(subject, "truth", trained=subject.truth), subject.truth) == 1.0


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


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["ba-shapes", "tree-cycles"])
@pytest.mark.parametrize("method", ["rcexplainer", "tage", "gisst", "subgraphx"])
def test_on_the_shipped_models_they_lead_random(method: str, dataset: str) -> None:
    """The same instances and the same size; random as the mean over five seeds."""
    source = from_dataset(dataset)
    keys = source.keys()[:20]
    truth = source.context(keys)["truth"]

    def scored(name: str, seed: int) -> float:
        spec = Spec(method=name, seed=seed, settings={"k": 6})
        with Session(source.request(keys, spec, source.needed(spec, keys))) as session:
            return float(cf2.metrics.truth(session.explain(keys), truth)["f1"])

    chance = sum(scored("random", seed) for seed in range(5)) / 5
    assert scored(method, 0) > chance + 0.04
