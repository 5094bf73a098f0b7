"""The torch_geometric drop-in: masks, verdicts, several nodes and graphs, targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.explain.metric import fidelity

import cf2
from cf2.pyg import CF2Explainer, CFGNNExplainer
from pyg_toys import make_explainer, make_graph, make_model
from toys import same_results

NODE_MASKS = {  # the kind of unit, and the shape of the mask
    "attributes": ("features", (12, 4)),
    "object": ("node_features", (12, 1)),
    "common_attributes": ("columns", (1, 4)),
}


def really(model: torch.nn.Module, data: Data, e: cf2.Explanation, keep: bool) -> int:
    """The class of e.key when only the explanation is there, or all but it; nothing of cf2 decides what is there."""
    chosen = {tuple(pair) for pair in e.edges.tolist()}
    columns = [i for i, pair in enumerate(data.edge_index.t().tolist()) if (tuple(pair) in chosen) == keep]
    x = data.x.clone()
    for kind in set(e.units.names) - {"edges"}:
        mask = torch.zeros_like(x, dtype=torch.bool)
        for node, column in e.chosen(kind).tolist():
            mask[slice(None) if node < 0 else node, slice(None) if column < 0 else column] = True
        x = x * (mask if keep else ~mask)
    out = model(x, data.edge_index[:, columns])
    return int(out[e.key if len(out) > 1 else 0].argmax())


# -- masks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gcn", "gin", "gat", "sage"])
@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("node_mask", [None, *NODE_MASKS])
def test_masks_hold_what_the_verdicts_are_about(kind: str, level: str, node_mask: str | None) -> None:
    model, data = make_model(kind, level, seed=4), make_graph(4)
    found = make_explainer(model, level, node_mask_type=node_mask)(
        data.x, data.edge_index, index=3 if level == "node" else None
    )
    (one,) = found.cf2
    assert one.size > 0 or one.status != "found"
    assert set(found.edge_mask.unique().tolist()) <= {0.0, 1.0}
    chosen = {tuple(pair) for pair in one.edges.tolist()}
    for value, pair in zip(found.edge_mask.tolist(), data.edge_index.t().tolist()):
        assert (value == 1.0) == (tuple(pair) in chosen) == (tuple(pair[::-1]) in chosen)
    assert found.edge_masks.shape == (data.num_edges, 1)
    for name in ("sufficient", "necessary", "minimal", "optimal"):
        assert getattr(found, name) == getattr(one, name)
    assert one.sufficient == (really(model, data, one, True) == one.prediction)
    assert one.necessary == (really(model, data, one, False) != one.prediction)
    if node_mask is None:
        assert "node_mask" not in found
        return
    unit, shape = NODE_MASKS[node_mask]
    assert found.node_mask.shape == shape
    places = {(max(node, 0), max(column, 0)) for node, column in one.chosen(unit).tolist()}
    assert {tuple(place) for place in found.node_mask.nonzero().tolist()} == places
    assert one.size == found.edge_mask.sum() / 2 + found.node_mask.sum()


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("returns", ["raw", "probs", "log_probs", "binary raw", "binary probs"])
def test_equals_cf2_explain(level: str, returns: str) -> None:
    model, data = make_model("gcn", level, returns, seed=1), make_graph(1)
    nodes = [2, 7] if level == "node" else None
    found = make_explainer(model, level, returns, node_mask_type="attributes")(
        data.x, data.edge_index, index=None if nodes is None else torch.tensor(nodes)
    )
    output = {"raw": "logits", "probs": "probabilities", "log_probs": "log_probabilities"}[returns.split()[-1]]
    units = ("edges", "features")
    direct = cf2.explain(model, data, nodes, effort="quick", units=units, output=output, level=level)
    assert same_results(found.cf2, direct)
    union = np.max([one.edge_mask(data.edge_index) for one in direct], axis=0)
    assert np.array_equal(found.edge_mask.numpy(), union)


def test_units_outside_the_receptive_field_are_zero() -> None:
    line = torch.tensor([list(range(9)), list(range(1, 10))])
    data = Data(x=torch.ones(10, 4), edge_index=torch.cat([line, line.flip(0)], 1))
    options = {"algorithm": CFGNNExplainer(soft=True, epochs=5), "node_mask_type": "attributes"}
    found = make_explainer(make_model("gin", "node"), "node", **options)(data.x, data.edge_index, index=0)
    near = (data.edge_index < 3).all(0)
    assert bool((found.edge_mask[near] > 0).all())
    assert bool((found.edge_mask[~near] == 0).all())
    assert bool((found.node_mask[3:] == 0).all())
    assert bool((found.node_mask[:3] > 0).all())


def test_soft_masks_threshold_to_the_set_and_rank_it_first() -> None:
    model, data = make_model("gcn", "graph", seed=1), make_graph(1)
    hard = make_explainer(model, "graph")(data.x, data.edge_index)
    soft = make_explainer(model, "graph", algorithm=CF2Explainer(effort="quick", soft=True))(data.x, data.edge_index)
    assert torch.equal(soft.threshold("hard", 0.5).edge_mask, hard.edge_mask)
    size = int(hard.edge_mask.sum())
    assert 0 < size < data.num_edges
    assert torch.equal(soft.threshold("topk_hard", size).edge_mask, hard.edge_mask)
    assert len(soft.edge_mask.unique()) > 2
    column = {tuple(pair): value for pair, value in zip(data.edge_index.t().tolist(), soft.edge_mask.tolist())}
    assert all(value == column[head, tail] for (tail, head), value in column.items())


# -- many at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gin", "gat"])
def test_each_of_several_nodes_has_its_own_explanation(kind: str) -> None:
    model, data = make_model(kind, "node"), make_graph()
    explain = make_explainer(model, "node", node_mask_type="attributes")
    nodes = [9, 0, 4]
    together = explain(data.x, data.edge_index, index=torch.tensor(nodes))
    alone = [explain(data.x, data.edge_index, index=node) for node in nodes]
    assert [one.key for one in together.cf2] == nodes
    assert len({(*one.edge_mask.tolist(), *one.node_mask.flatten().tolist()) for one in alone}) > 1
    assert torch.equal(together.edge_mask, torch.stack([one.edge_mask for one in alone]).amax(0))
    assert torch.equal(together.node_mask, torch.stack([one.node_mask for one in alone]).amax(0))
    for place, (part, one) in enumerate(zip(together.each(), alone)):
        assert torch.equal(part.edge_mask, one.edge_mask)
        assert torch.equal(part.node_mask, one.node_mask)
        assert torch.equal(together.edge_masks[:, place], one.edge_mask.bool())
        assert part.index.tolist() == [nodes[place]]
        assert part.sufficient == one.sufficient
        assert fidelity(explain, part) == fidelity(explain, one)
    assert together.sufficient == all(one.sufficient for one in alone)
    assert together.necessary == all(one.necessary for one in alone)


@pytest.mark.parametrize("node_mask", ["attributes", "object"])
def test_each_graph_of_a_batch_is_explained_on_its_own(node_mask: str) -> None:
    model = make_model("gin", "graph", seed=2)
    graphs = [make_graph(seed, nodes) for seed, nodes in ((0, 12), (1, 7), (2, 9))]
    batch = Batch.from_data_list(graphs)
    explain = make_explainer(model, "graph", node_mask_type=node_mask)
    together = explain(batch.x, batch.edge_index, batch=batch.batch)
    alone = [explain(g.x, g.edge_index) for g in graphs]
    assert torch.equal(together.edge_mask, torch.cat([one.edge_mask for one in alone]))
    assert torch.equal(together.node_mask, torch.cat([one.node_mask for one in alone]))
    last = explain(batch.x, batch.edge_index, batch=batch.batch, index=2)
    assert torch.equal(last.edge_mask, together.each()[2].edge_mask)
    assert not last.edge_mask[: graphs[0].num_edges + graphs[1].num_edges].any()
    assert fidelity(explain, last) == (float(last.necessary), float(not last.sufficient))
    shuffle = torch.randperm(batch.num_nodes, generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(shuffle)
    place[shuffle] = torch.arange(len(shuffle))
    mixed = explain(batch.x[shuffle], place[batch.edge_index], batch=batch.batch[shuffle])
    assert [one.size for one in mixed.cf2] == [one.size for one in together.cf2]
    for one, part in zip(mixed.cf2, range(3)):
        assert set(batch.batch[shuffle][one.edges.flatten()].tolist()) <= {part}


# -- targets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("returns", ["raw", "binary raw"])
@pytest.mark.parametrize("level", ["node", "graph"])
def test_a_phenomenon_explains_the_given_class(level: str, returns: str) -> None:
    model, data = make_model("gin", level, returns), make_graph()
    out = model(data.x, data.edge_index)
    predicted = (out > 0).long().view(-1) if returns == "binary raw" else out.argmax(-1)
    own = make_explainer(model, level, returns)
    given = make_explainer(model, level, returns, explanation_type="phenomenon")
    index = 5 if level == "node" else None
    same = given(data.x, data.edge_index, target=predicted, index=index)
    assert torch.equal(same.edge_mask, own(data.x, data.edge_index, index=index).edge_mask)
    other = given(data.x, data.edge_index, target=1 - predicted.clamp(max=1), index=index)
    assert other.cf2[0].explained == 1 - int(predicted.clamp(max=1)[index or 0])
    assert other.cf2[0].prediction == int(predicted[index or 0])
    as_float = given(data.x, data.edge_index, target=predicted.float(), index=index)
    assert torch.equal(as_float.edge_mask, same.edge_mask)
