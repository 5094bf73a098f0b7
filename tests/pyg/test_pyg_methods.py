"""Any registered method inside torch_geometric, and what `supports` refuses of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

import cf2
from cf2.errors import CF2Error
from cf2.methods import registry
from cf2.methods.contract import Method, Problem, Ranking, choose
from cf2.pyg import MethodExplainer
from cf2.sets.search import Choice
from pyg_toys import make_explainer, make_graph, make_model
from toys import same_results


@dataclass(frozen=True)
class Settings:
    """`k` units are chosen."""

    k: int = 2


def last_first(problem: Problem, settings: Settings) -> Ranking:
    """Later units of an instance score higher."""
    pack = problem.pack
    scores = torch.cat([torch.arange(1, count + 1) / count for count in pack.units.counts.tolist()])
    evaluations = torch.zeros(problem.num_instances, dtype=torch.long)
    return Ranking(scores, Choice(choose(scores, pack, k=settings.k), evaluations))


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """(what is special about a method) -> the name under which it is registered during the test."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))

    def make(**options: Any) -> str:
        return cf2.register(
            Method("last-first", "last first", "by position", settings=Settings, rank=last_first, **options)
        ).name

    return make


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("node_mask", [None, "attributes", "object", "common_attributes"])
def test_a_method_of_ones_own_fills_every_mask(level: str, node_mask: str | None, register: Callable[..., str]) -> None:
    model, data = make_model("gcn", level, seed=1), make_graph(1)
    algorithm = MethodExplainer(register(), k=3)
    index = 5 if level == "node" else None
    found = make_explainer(model, level, algorithm=algorithm, node_mask_type=node_mask)(
        data.x, data.edge_index, index=index
    )
    (one,) = found.cf2
    assert (one.method, one.settings, one.status) == ("last-first", {"k": 3}, "unverified")
    assert one.selected.nonzero()[0].tolist() == list(range(one.num_units - 3, one.num_units))
    in_masks = [found.edge_mask.sum() / 2, 0 if node_mask is None else found.node_mask.sum()]
    assert in_masks == ([3, 0] if node_mask is None else [0, 3])  # features come after edges
    assert found.necessary == (int(one.probabilities_without.argmax()) != one.prediction)


@pytest.mark.parametrize("name", [name for name in registry.names() if registry.get(name).needs == "nothing"])
def test_every_method_equals_cf2_explain(name: str) -> None:
    model, data = make_model("gcn", "node", seed=1), make_graph(1)
    settings = {"epochs": 10} if "epochs" in {f.name for f in fields(registry.get(name).settings)} else {}
    algorithm = MethodExplainer(name, seed=3, **settings)
    units = (registry.get(name).units or ("edges",))[0]
    masks = {} if units == "edges" else {"edge_mask_type": None, "node_mask_type": "common_attributes"}
    explainer = make_explainer(model, "node", algorithm=algorithm, **masks)
    found = explainer(data.x, data.edge_index, index=torch.tensor([2, 7]))
    settings |= {"method": name, "units": units, "seed": 3, "output": "logits"}
    assert same_results(found.cf2, cf2.explain(model, data, [2, 7], **settings))


def test_a_method_that_only_ranks_can_be_searched_from() -> None:
    model, data = make_model("gin", "graph", seed=4), make_graph(4)
    ranked, searched = (
        make_explainer(model, "graph", algorithm=MethodExplainer("gradient", **options))(data.x, data.edge_index)
        for options in ({}, {"search": True, "effort": "quick"})
    )
    assert ranked.cf2[0].status == "unverified"
    assert searched.cf2[0].status == "found"
    assert searched.sufficient
    assert searched.necessary
    with pytest.raises(CF2Error, match="effort"):
        MethodExplainer("gradient", effort="quick")
    with pytest.raises(CF2Error, match="effort"):
        MethodExplainer("gradient", search=True, effort="huge")


def test_a_method_that_is_trained_first() -> None:
    model, data = make_model("gcn", "node", seed=1), make_graph(1)
    trained = cf2.fit(model, data, range(6), method="pgexplainer", epochs=2)
    algorithm = MethodExplainer("pgexplainer", trained=trained, k=2, soft=True)
    found = make_explainer(model, "node", algorithm=algorithm)(data.x, data.edge_index, index=7)
    direct = cf2.explain(model, data, [7], method="pgexplainer", trained=trained, k=2, output="logits")
    assert same_results(found.cf2, direct)
    assert len(found.edge_mask.unique()) > 3
    other = make_explainer(model, "node", algorithm=MethodExplainer("gem", trained=trained))
    with pytest.raises(CF2Error, match="trained for method 'gem'"):
        other(data.x, data.edge_index, index=7)


def test_keys_and_ids_are_those_of_the_batch() -> None:
    graphs = [make_graph(0, 12), make_graph(1, 7)]
    batch = Batch.from_data_list(graphs)
    ends = batch.edge_index[:, [3, 2 * 12 + 9]]  # one edge in each graph
    assert batch.batch[ends[0]].tolist() == [0, 1]
    truth = {key: [ends[:, key].tolist()] for key in (0, 1)}
    algorithm = MethodExplainer("truth", trained=truth)
    found = make_explainer(make_model("gin", "graph"), "graph", algorithm=algorithm)(
        batch.x, batch.edge_index, batch=batch.batch
    )
    for key, part in enumerate(found.each()):
        chosen = batch.edge_index[:, part.edge_mask > 0].t().tolist()
        assert np.array_equal(sorted(chosen), sorted([ends[:, key].tolist(), ends[:, key].flip(0).tolist()]))
