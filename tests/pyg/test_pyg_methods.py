"""Any registered method inside torch_geometric, and what `supports` refuses of it."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

import cf2
from cf2.errors import CF2Error
from cf2.methods import registry
from cf2.pyg import MethodExplainer
from pyg_toys import make_explainer, make_graph, make_model
from toys import same_results


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
