"""What must not matter to an answer, for every method and option: the company, its order, scale, form, modes, packing.

A row of `ASKED` is a method or an option; a row of `WAYS` is the same question in another way. Every pair is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cf2
from cf2.methods import registry
from cf2.models import oracle
from cf2.runs import session
from toys import GraphNet, NodeNet, random_graph

DATA, MODEL = random_graph(12, 16, seed=4), NodeNet("gin", seed=2, layers=2)
GRAPHS, POOLED = [random_graph(6, 8, seed=seed) for seed in range(4)], GraphNet("gin", seed=3)
NODES = [1, 4, 6, 9]
SETTINGS: dict[str, dict[str, Any]] = {
    "cf2": {"proof": 100},
    "cf2-relaxed": {"epochs": 20},
    "gnnexplainer": {"epochs": 20},
    "cf-gnnexplainer": {"epochs": 20},
    "subgraphx": {"budget": 200},
}
QUICK: dict[str, Any] = {"effort": "quick", "epochs": 5}
CHANGED = {**QUICK, "question": "counterfactual"}
OPTIONS: dict[str, dict[str, Any]] = {
    "factual": {**QUICK, "question": "factual"},
    "features": {**QUICK, "units": ("edges", "features")},
    "nodes": {**QUICK, "units": "nodes"},
    "added": {**CHANGED, "edits": ("add",), "candidates": "near"},
    "changed": {**CHANGED, "edits": ("change",)},
    "kept": {**CHANGED, "edits": ("remove", "add"), "candidates": "near", "connected": True},
    "alternatives": {**QUICK, "alternatives": 3},
    "thorough": {"effort": "thorough", "epochs": 5},
    "confidence": {**QUICK, "confidence": 0.1},
    "contexts": {**QUICK, "contexts": 8},
    "seed": {"method": "random", "k": 3, "seed": 3},
    "searched": {"method": "gradient", "k": 2, "search": True, "effort": "quick"},
}
METHODS = {f"method {name}": {"method": name} for name in registry.names()}
SEEDED = {f"{name}, seeded": {**asked, "seed": 3} for name, asked in METHODS.items()}
ASKED = {**METHODS, **SEEDED, **OPTIONS}


@cache
def trained(method: str) -> Any:
    if method == "truth":
        return {node: DATA.edge_index.t()[::3].numpy() for node in range(12)}
    return cf2.fit(MODEL, DATA, range(12), method=method, k=3, epochs=2)


def options_of(name: str) -> dict[str, Any]:
    """The options of a row, with what its method needs."""
    asked = dict(ASKED[name])
    if name in METHODS or name in SEEDED:
        method = registry.get(asked["method"])
        asked |= SETTINGS.get(method.name, {}) | {"units": (method.units or ("edges",))[0]}
        asked |= {"trained": trained(method.name)} if method.needs in ("training", "truth") else {}
    return asked


def of_nodes(name: str, nodes: list[int] = NODES, model: nn.Module = MODEL, **more: Any) -> list[cf2.Explanation]:
    return list(cf2.explain(model, DATA, nodes, **options_of(name) | more))


@cache
def usual(name: str) -> list[cf2.Explanation]:
    return of_nodes(name)


# -- the same question in another way: each gives what must be the same as `usual` ---------------------------------


def one_by_one(name: str) -> list[cf2.Explanation]:
    return [e for node in NODES for e in of_nodes(name, [node])]


def in_another_order(name: str) -> list[cf2.Explanation]:
    found = of_nodes(name, NODES[::-1])
    return sorted(found, key=lambda e: NODES.index(e.key))  # type: ignore[arg-type]


class Said(nn.Module):
    """Another model's output, in another form."""

    def __init__(self, make: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.make = MODEL, make

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.make(self.inner(x, edge_index))


def modes() -> tuple[Any, ...]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()


def within(mode: Callable[[], AbstractContextManager[Any]]) -> Callable[[str], list[cf2.Explanation]]:
    def ask(name: str) -> list[cf2.Explanation]:
        usual(name)  # what is trained is trained outside of it
        with mode():
            before = modes()
            found = of_nodes(name)
            assert modes() == before
            return found

    return ask


@contextmanager
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def narrow() -> Iterator[None]:
    """One instance or one trial in a pack."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "UNITS_PER_PART", 1)
        patch.setattr(oracle, "MAX_FLOATS_PER_CALL", 1)
        yield


WAYS: dict[str, Callable[[str], list[cf2.Explanation]]] = {
    "one by one": one_by_one,
    "in another order": in_another_order,
    "no_grad": within(torch.no_grad),
    "inference_mode": within(torch.inference_mode),
    "float64 by default": within(double),
    "in narrow packs": within(narrow),
}
SEARCHED: dict[str, Callable[[str], list[cf2.Explanation]]] = {  # where outputs decide, and not the numbers of slopes
    "as log-probabilities": lambda name: of_nodes(name, model=Said(lambda out: out.log_softmax(-1))),
    "as probabilities": lambda name: of_nodes(name, model=Said(lambda out: out.softmax(-1)), output="probabilities"),
}


CLAIMS = (
    "key",
    "rank",
    "status",
    "prediction",
    "sufficient",
    "necessary",
    "minimal",
    "optimal",
    "lower_bound",
    "complete",
)


def same_answers(found: list[cf2.Explanation], expected: list[cf2.Explanation], near: float) -> None:
    for e, other in zip(found, expected, strict=True):
        for claim in CLAIMS:
            assert getattr(e, claim) == getattr(other, claim), (e.key, claim)
        assert e.selected.tolist() == other.selected.tolist(), e.key
        assert np.array_equal(e.units.ids, other.units.ids)
        for values, others in ((e.scores, other.scores), (e.probabilities, other.probabilities)):
            assert np.allclose(values, others, atol=near), e.key


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name in ASKED for way in WAYS if name not in SEEDED or way == "one by one"]
)
def test_the_answer_is_the_same_whichever_way_it_is_asked_for(name: str, way: str) -> None:
    same_answers(WAYS[way](name), usual(name), near=1e-4)


DECIDED = ["factual", "features", "nodes", "added", "changed", "kept", "alternatives", "confidence"]


@pytest.mark.parametrize("way", SEARCHED)
@pytest.mark.parametrize("name", DECIDED)
def test_the_form_of_the_output_does_not_matter(name: str, way: str) -> None:
    same_answers(SEARCHED[way](name), usual(name), near=1e-3)


@pytest.mark.parametrize("name", DECIDED)
def test_double_precision_does_not_matter(name: str) -> None:
    """No margin of these answers is a matter of rounding."""
    data = DATA.clone()
    data.x = data.x.double()
    same_answers(list(cf2.explain(deepcopy(MODEL).double(), data, NODES, **options_of(name))), usual(name), near=1e-3)


@pytest.mark.parametrize("scale", [0.1, 10.0])
@pytest.mark.parametrize("name", ["factual", "features", "nodes", "added", "thorough"])
def test_the_scale_of_the_output_does_not_change_what_is_proved(name: str, scale: float) -> None:
    """A scale changes slopes, and so which of several smallest sets is found; never the class, the size or a proof."""
    more = {"proof": 5_000}
    for e, other in zip(
        of_nodes(name, model=Said(lambda out: scale * out), **more), of_nodes(name, **more), strict=True
    ):
        assert (e.prediction, e.num_units) == (other.prediction, other.num_units)
        if e.optimal and other.optimal:
            assert e.size == other.size
        assert {e.status, other.status} != {"found", "impossible"}


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in ("changed", "seed")])
def test_other_graphs_of_the_list_do_not_matter(name: str) -> None:
    """Not so the values that features may change to, which are read from all graphs; a seed draws by position."""
    together = list(cf2.explain(POOLED, GRAPHS, **options_of(name)))
    for position, graph in enumerate(GRAPHS):
        alone = list(cf2.explain(POOLED, [graph], **options_of(name)))
        own = [e for e in together if e.key == position]
        assert [(e.status, e.size, e.selected.tolist()) for e in own] == [
            (e.status, e.size, e.selected.tolist()) for e in alone
        ]
