"""Instances with more units than `max_units`: refused, or reduced to what matters most, and always said."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

import cf2
from cf2.samples.models import build


def star(leaves: int = 40, loud: int = 3) -> tuple[torch.nn.Module, Data]:
    """A hub whose class hangs on the few leaves with a large feature; a sum of one layer sees just those."""
    model = build("gcn", task="node", num_features=1, num_classes=2, hidden=2, layers=1, aggregation="sum")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        conv, head = model.convs[0], model.head[0]  # type: ignore[index, union-attr]
        conv.lin.weight[0, 0] = 1.0
        head.weight[1, 0] = 1.0
        head.bias[0] = 2.5 * 10  # class 1 needs all three loud leaves
    x = torch.full((leaves + 1, 1), 0.01)
    x[1 : loud + 1] = 10.0
    spokes = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    return model, Data(x=x, edge_index=torch.cat([spokes, spokes.flip(0)], 1))


def test_a_hub_over_the_budget_is_refused_and_the_others_are_explained() -> None:
    model, data = star()
    nodes = [5, 0, 6, 0]
    found = cf2.explain(model, data, nodes=nodes, max_units=10)
    assert [e.key for e in found] == nodes
    assert [e.status == "refused" for e in found] == [False, True, False, True]
    hub = found[1]
    assert hub.summary() == (
        "Refused: The instance has 40 units, more than max_units = 10. "
        'Raise max_units, or pass reduce="gradient" to search only the units with the largest gradients.'
    )
    assert (hub.num_units, hub.size, hub.necessary, hub.prediction) == (0, 0, False, 1)
    plain = cf2.explain(model, data, nodes=nodes)
    assert np.array_equal(found[0].selected, plain[0].selected)
    assert not any(e.status == "refused" for e in cf2.explain(model, data, nodes=nodes, max_units=40))


def test_a_reduced_hub_says_so_and_is_verified_on_the_whole_graph() -> None:
    model, data = star()
    hub, leaf = cf2.explain(model, data, nodes=[0, 5], max_units=10, reduce="gradient")
    assert "10 of 40 units" in hub.note
    assert "whole receptive field" in hub.note
    assert "gradient" not in leaf.note
    assert hub.num_units == 40
    assert (hub.sufficient, hub.necessary, hub.status) == (True, True, "found")
    assert {tuple(edge) for edge in hub.chosen("edges").tolist()} == {(0, 1), (0, 2), (0, 3)}
    assert hub.optimal is None
    kept = torch.tensor(hub.edges).t()
    with torch.no_grad():
        alone = model(data.x, kept)[0].softmax(0)
    assert np.allclose(alone.numpy(), hub.probabilities_only, atol=1e-5)  # all other 37 edges are gone in that test
