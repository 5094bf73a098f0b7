"""The torch_geometric drop-in: masks, verdicts, arguments, and what torch_geometric does with them."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.metric import fidelity, unfaithfulness
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool

import cf2
from cf2.errors import CF2Error
from cf2.pyg import CF2Explainer, CFGNNExplainer, VerifiedExplanation

CONVOLUTIONS = {
    "gcn": lambda a, b: GCNConv(a, b),
    "gin": lambda a, b: GINConv(torch.nn.Linear(a, b)),
    "gat": lambda a, b: GATConv(a, b, heads=1),
    "sage": lambda a, b: SAGEConv(a, b),
}
RETURNS = ("raw", "probs", "log_probs", "binary raw", "binary probs")
NODE_MASKS = {None: None, "attributes": (12, 4), "object": (12, 1), "common_attributes": (1, 4)}


class Toy(torch.nn.Module):
    """Two convolutions, pooling for graphs, and the kind of output that is asked for."""

    def __init__(self, kind: str, level: str, returns: str = "raw", seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        outputs = 1 if returns.startswith("binary") else 3
        self.convs = torch.nn.ModuleList([CONVOLUTIONS[kind](4, 8), CONVOLUTIONS[kind](8, outputs)])
        self.level, self.returns = level, returns

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        h = self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)
        if self.level == "graph":
            h = global_add_pool(h, batch)
        if self.returns in ("raw", "binary raw"):
            return h
        if self.returns == "binary probs":
            return h.sigmoid()
        return h.softmax(-1) if self.returns == "probs" else h.log_softmax(-1)


def graph(seed: int = 0, nodes: int = 12) -> Data:
    """A ring with chords, undirected, with some zeros in its features."""
    draw = torch.Generator().manual_seed(seed)
    pairs = {(i, (i + 1) % nodes) for i in range(nodes)} | {
        (i, (i * 5 + 2) % nodes) for i in range(0, nodes, 3)
    }
    pairs = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    order = torch.randperm(2 * len(pairs), generator=draw)
    both = torch.tensor([*pairs, *((b, a) for a, b in pairs)]).t()[:, order]
    x = torch.randn(nodes, 4, generator=draw)
    return Data(x=x * (torch.rand(nodes, 4, generator=draw) > 0.3), edge_index=both.contiguous())


def explainer(
    model: torch.nn.Module, level: str, returns: str = "raw", algorithm: Any = None, **options: Any
) -> Explainer:
    mode = "binary_classification" if returns.startswith("binary") else "multiclass_classification"
    return Explainer(
        model,
        algorithm or CF2Explainer(effort="quick"),
        explanation_type=options.pop("explanation_type", "model"),
        model_config={"mode": mode, "task_level": level, "return_type": returns.split()[-1]},
        edge_mask_type=options.pop("edge_mask_type", "object"),
        **options,
    )


def really(model: torch.nn.Module, data: Data, e: cf2.Explanation, keep: bool) -> int:
    """The class of node e.key when only the explanation is there, or all but it, without any code of cf2."""
    chosen = {tuple(pair) for pair in e.edges.tolist()}
    columns = [i for i, pair in enumerate(data.edge_index.t().tolist()) if (tuple(pair) in chosen) == keep]
    x = data.x.clone()
    if len(e.unit_features):
        mask = torch.zeros_like(x, dtype=torch.bool)
        mask[e.features[:, 0], e.features[:, 1]] = True
        x = x * (mask if keep else ~mask)
    out = model(x, data.edge_index[:, columns])
    return int(out[e.key if len(out) > 1 else 0].argmax())


# -- masks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("node_mask", NODE_MASKS)
def test_masks_hold_what_the_verdicts_are_about(kind: str, level: str, node_mask: str | None) -> None:
    model, data = Toy(kind, level).eval(), graph()
    found = explainer(model, level, node_mask_type=node_mask)(
        data.x, data.edge_index, index=3 if level == "node" else None
    )
    (one,) = found.cf2
    assert set(found.edge_mask.unique().tolist()) <= {0.0, 1.0}
    chosen = {tuple(pair) for pair in one.edges.tolist()}
    for value, pair in zip(found.edge_mask.tolist(), data.edge_index.t().tolist()):
        assert (value == 1.0) == (tuple(pair) in chosen) == (tuple(pair[::-1]) in chosen)
    assert found.edge_masks.shape == (data.num_edges, 1)
    for name in ("sufficient", "necessary", "minimal", "optimal"):
        assert found[name] == getattr(one, name)
    assert one.sufficient == (really(model, data, one, True) == one.prediction)
    assert one.necessary == (really(model, data, one, False) != one.prediction)
    if node_mask is None:
        assert "node_mask" not in found
        return
    assert found.node_mask.shape == NODE_MASKS[node_mask]
    whole = found.node_mask.expand(12, 4) * (data.x != 0)
    if level == "node":  # a column is masked in the whole graph, and chosen in the computation graph
        whole = whole * torch.tensor([[float(n in one.unit_features[:, 0])] for n in range(12)])
    assert {tuple(p) for p in whole.nonzero().tolist()} == {tuple(p) for p in one.features.tolist()}


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("returns", RETURNS)
@pytest.mark.parametrize("algorithm", [CF2Explainer, CFGNNExplainer])
def test_equals_cf2_explain(level: str, returns: str, algorithm: type) -> None:
    model, data = Toy("gcn", level, returns, seed=1).eval(), graph(1)
    settings = {"epochs": 30}
    method = "cf2" if algorithm is CF2Explainer else "cf-gnnexplainer"
    nodes = [2, 7] if level == "node" else None
    found = explainer(model, level, returns, algorithm(**settings), node_mask_type="attributes")(
        data.x, data.edge_index, index=None if nodes is None else torch.tensor(nodes)
    )
    output = {"raw": "logits", "probs": "probabilities", "log_probs": "log_probabilities"}[
        returns.split()[-1]
    ]
    source = data if nodes else [data]
    direct = cf2.explain(model, source, nodes, method=method, features=True, output=output, **settings)
    assert len(found.cf2) == len(direct)
    for one, other in zip(found.cf2, direct):
        assert (one.key, one.prediction, one.status) == (other.key, other.prediction, other.status)
        assert np.array_equal(one.selected, other.selected)
        assert np.array_equal(one.unit_edges, other.unit_edges)
        assert np.allclose(one.scores, other.scores)
    union = np.max([one.edge_mask(data.edge_index) for one in direct], axis=0)
    assert np.array_equal(found.edge_mask.numpy(), union)


def test_an_object_mask_is_smallest_in_whole_nodes() -> None:
    """Exhaustive search over sets of nodes, whose features go or stay together, finds none smaller."""
    model, data = Toy("gin", "graph", seed=4).eval(), graph(2, nodes=8)
    algorithm = CF2Explainer(effort="thorough")
    found = explainer(model, "graph", algorithm=algorithm, node_mask_type="object", edge_mask_type=None)(
        data.x, data.edge_index
    )
    assert "edge_mask" not in found
    prediction = int(model(data.x, data.edge_index).argmax())

    def passes(bits: int) -> bool:
        mask = torch.tensor([[float(bits >> n & 1)] for n in range(8)])
        only = int(model(data.x * mask, data.edge_index).argmax())
        without = int(model(data.x * (1 - mask), data.edge_index).argmax())
        return only == prediction and without != prediction

    smallest = min(bits.bit_count() for bits in range(256) if passes(bits))
    chosen = int(sum(2**n for n, value in enumerate(found.node_mask.flatten().tolist()) if value))
    assert found.sufficient
    assert found.necessary
    assert passes(chosen)
    assert found.optimal is True
    assert chosen.bit_count() == smallest


def test_units_outside_the_computation_graph_are_zero() -> None:
    line = torch.tensor([list(range(9)), list(range(1, 10))])
    data = Data(x=torch.ones(10, 4), edge_index=torch.cat([line, line.flip(0)], 1))
    options = {"algorithm": CFGNNExplainer(soft=True, epochs=5), "node_mask_type": "attributes"}
    found = explainer(Toy("gin", "node").eval(), "node", **options)(data.x, data.edge_index, index=0)
    near = (data.edge_index < 3).all(0)
    assert bool((found.edge_mask[near] > 0).all())
    assert bool((found.edge_mask[~near] == 0).all())
    assert bool((found.node_mask[3:] == 0).all())
    assert bool((found.node_mask[:3] > 0).all())


def test_soft_masks_threshold_to_the_set_and_rank_it_first() -> None:
    model, data = Toy("gcn", "graph").eval(), graph()
    hard = explainer(model, "graph")(data.x, data.edge_index)
    soft = explainer(model, "graph", algorithm=CF2Explainer(effort="quick", soft=True))(
        data.x, data.edge_index
    )
    assert torch.equal(soft.threshold("hard", 0.5).edge_mask, hard.edge_mask)
    size = int(hard.edge_mask.sum())
    assert 0 < size < data.num_edges
    assert torch.equal(soft.threshold("topk_hard", size).edge_mask, hard.edge_mask)
    assert len(soft.edge_mask.unique()) > 2
    column = {
        tuple(pair): value for pair, value in zip(data.edge_index.t().tolist(), soft.edge_mask.tolist())
    }
    assert all(value == column[head, tail] for (tail, head), value in column.items())


def test_relaxed_is_the_papers_procedure() -> None:
    model, data = Toy("gcn", "node").eval(), graph()
    algorithm = CF2Explainer(relaxed=True, epochs=40, lam=5)
    found = explainer(model, "node", algorithm=algorithm)(data.x, data.edge_index, index=4)
    (direct,) = cf2.explain(model, data, [4], method="cf2-relaxed", epochs=40, lam=5, output="logits")
    assert np.array_equal(found.edge_mask.numpy(), direct.edge_mask(data.edge_index))
    assert found.minimal is None


# -- many at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gin", "gat"])
def test_each_of_several_nodes_has_its_own_explanation(kind: str) -> None:
    model, data = Toy(kind, "node").eval(), graph()
    explain = explainer(model, "node", node_mask_type="attributes")
    nodes = [9, 0, 4]
    together = explain(data.x, data.edge_index, index=torch.tensor(nodes))
    alone = [explain(data.x, data.edge_index, index=node) for node in nodes]
    assert [one.key for one in together.cf2] == nodes
    assert len({tuple(one.edge_mask.tolist()) for one in alone}) > 1
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


def test_several_nodes_are_one_packed_run() -> None:
    model, data = Toy("gcn", "node").eval(), graph()
    calls = []
    model.convs[0].register_forward_hook(lambda *_: calls.append(1))
    explain = explainer(model, "node", algorithm=CFGNNExplainer(epochs=20))
    explain(data.x, data.edge_index, index=0)
    one = len(calls)
    calls.clear()
    explain(data.x, data.edge_index, index=torch.arange(12))
    assert len(calls) < 3 * one


def test_index_is_read_as_torch_reads_it() -> None:
    model, data = Toy("gcn", "node").eval(), graph()
    explain = explainer(model, "node")
    mask = torch.zeros(12, dtype=torch.bool)
    mask[11] = True
    by_id = explain(data.x, data.edge_index, index=11)
    for index in (-1, torch.tensor(11), mask):
        assert torch.equal(explain(data.x, data.edge_index, index=index).edge_mask, by_id.edge_mask)
    assert len(explain(data.x, data.edge_index).cf2) == 12
    for wrong in (12, torch.tensor([0.5]), torch.zeros(0, dtype=torch.long)):
        with pytest.raises(CF2Error, match="index"):
            explain(data.x, data.edge_index, index=wrong)


def test_each_graph_of_a_batch_is_explained_on_its_own() -> None:
    model = Toy("gin", "graph", seed=2).eval()
    graphs = [graph(seed, nodes) for seed, nodes in ((0, 12), (1, 7), (2, 9))]
    batch = Batch.from_data_list(graphs)
    explain = explainer(model, "graph", node_mask_type="attributes")
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
    model, data = Toy("gin", level, returns).eval(), graph()
    out = model(data.x, data.edge_index)
    predicted = (out > 0).long().view(-1) if returns == "binary raw" else out.argmax(-1)
    own = explainer(model, level, returns)
    given = explainer(model, level, returns, explanation_type="phenomenon")
    index = 5 if level == "node" else None
    same = given(data.x, data.edge_index, target=predicted, index=index)
    assert torch.equal(same.edge_mask, own(data.x, data.edge_index, index=index).edge_mask)
    other = given(data.x, data.edge_index, target=1 - predicted.clamp(max=1), index=index)
    assert other.cf2[0].prediction == 1 - int(predicted.clamp(max=1)[index or 0])
    assert (
        given(data.x, data.edge_index, target=predicted.float(), index=index).cf2[0].size == same.cf2[0].size
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.tensor([1]), "one class for each of the model's 12 outputs"),
        (torch.full((12,), 3), "classes from 0 to 2"),
        (torch.full((12,), -1), "whole numbers from 0"),
        (torch.full((12,), 0.5), "whole numbers from 0"),
    ],
)
def test_bad_targets_are_refused(target: Tensor, message: str) -> None:
    data = graph()
    explain = explainer(Toy("gcn", "node").eval(), "node", explanation_type="phenomenon")
    with pytest.raises(CF2Error, match=message):
        explain(data.x, data.edge_index, target=target, index=0)


# -- arguments of the model --------------------------------------------------------------------------------


class Arguments(torch.nn.Module):
    """Takes arguments of every kind: of nodes, of edges, of graphs, and constants."""

    def __init__(self, level: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.level = GCNConv(4, 3, normalize=False), level
        self.last = torch.nn.Linear(3, 3)
        self.seen: list[set[str]] = []

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        **further: Any,
    ) -> Tensor:
        self.seen.append({name for name, value in further.items() if value is not None})
        h = self.last(self.conv(x + further["y"], edge_index, edge_weight * further["strength"]).relu())
        if self.level == "node":
            return h * further["scale"]
        return (global_add_pool(h, batch) + further["shift"]) * further["scale"]


@pytest.mark.parametrize("level", ["node", "graph"])
def test_arguments_reach_the_model_in_their_places(level: str) -> None:
    model = Arguments(level).eval()
    graphs = [graph(0, 12), graph(1, 7)]
    data = Batch.from_data_list(graphs) if level == "graph" else graphs[0]
    draw = torch.Generator().manual_seed(0)
    given: dict[str, Any] = {
        "edge_weight": torch.rand(data.num_edges, generator=draw) + 0.5,
        "strength": torch.rand(data.num_edges, generator=draw)
        + 0.5,  # of edges, under a name that does not say so
        "y": torch.randn(
            data.num_nodes, 4, generator=draw
        ),  # of nodes, under a name that Data uses for labels
        "scale": 2.0,
    }
    if level == "graph":
        given |= {"batch": data.batch, "shift": torch.randn(2, 3, generator=draw)}
    explain = explainer(model, level)
    found = explain(data.x, data.edge_index, index=torch.tensor([0, 1]), **given)
    assert all(names == set(given) - {"edge_weight", "batch"} for names in model.seen)
    truth = model(data.x, data.edge_index, **given).softmax(-1)
    for part in found.each():
        (one,) = part.cf2
        assert torch.allclose(torch.from_numpy(one.probabilities), truth[one.key], atol=1e-5)
        keep = part.edge_mask > 0
        cut = {k: v[keep] if k in ("edge_weight", "strength") else v for k, v in given.items()}
        only = model(data.x, data.edge_index[:, keep], **cut)
        assert torch.allclose(torch.from_numpy(one.only), only.softmax(-1)[one.key], atol=1e-5)
    assert fidelity(explain, found.each()[1])[0] == float(found.each()[1].necessary)


def test_an_output_that_depends_on_the_rest_of_the_batch_is_refused() -> None:
    class Mixing(Toy):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            h = super().forward(x, edge_index, batch)
            return 10 * (h - h.mean(0)) if len(h) == 2 else torch.tensor([[0.0, 0.0, 9.0]]).repeat(len(h), 1)

    batch = Batch.from_data_list([graph(0), graph(1), graph(2)])
    twice = Batch.from_data_list([graph(0), graph(1)])
    model = Mixing("gin", "graph").eval()
    assert int(model(twice.x, twice.edge_index, twice.batch)[0].argmax()) != 2
    with pytest.raises(CF2Error, match="by itself as well"):
        explainer(model, "graph")(twice.x, twice.edge_index, batch=twice.batch, index=0)
    assert batch.num_graphs == 3


# -- what torch_geometric does with it ---------------------------------------------------------------------


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("node_mask", [None, "attributes", "object"])
@pytest.mark.parametrize("seed", range(3))
def test_fidelity_is_the_verdict_where_a_zero_message_is_no_message(
    level: str, node_mask: str | None, seed: int
) -> None:
    model, data = Toy("gin", level, seed=seed).eval(), graph(seed)
    explain = explainer(model, level, node_mask_type=node_mask)
    found = explain(data.x, data.edge_index, index=2 if level == "node" else None)
    assert fidelity(explain, found) == (float(found.necessary), float(not found.sufficient))
    assert 0 <= unfaithfulness(explain, found) <= 1


@pytest.mark.parametrize("node_mask", NODE_MASKS)
def test_subgraphs_keep_the_explanation(node_mask: str | None) -> None:
    model, data = Toy("gin", "node").eval(), graph()
    found = explainer(model, "node", node_mask_type=node_mask)(
        data.x, data.edge_index, index=torch.tensor([1, 6])
    )
    inside, outside = found.get_explanation_subgraph(), found.get_complement_subgraph()
    assert isinstance(inside, VerifiedExplanation)
    assert inside.num_edges == int(found.edge_mask.sum()) == inside.edge_masks.any(1).sum()
    assert inside.num_edges + outside.num_edges == data.num_edges
    assert inside.validate_masks()
    assert inside.num_edges > 0
    with pytest.raises(CF2Error, match="whole graph"):
        inside.each()


def test_pictures(tmp_path: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    data = graph()
    found = explainer(Toy("gin", "node").eval(), "node", node_mask_type="attributes")(
        data.x, data.edge_index, index=1
    )
    for value, name in (
        (found.edge_mask, "set"),
        (torch.ones(data.num_edges), "all"),
        (torch.zeros(data.num_edges), "none"),
    ):
        found.edge_mask = value
        found.visualize_graph(str(tmp_path / f"{name}.png"), backend="networkx")
    found.visualize_feature_importance(str(tmp_path / "features.png"))
    sizes = {path.stem: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["none"] < sizes["set"]
    assert sizes["none"] < sizes["all"]


def test_the_result_survives_copying_saving_and_thresholds(tmp_path: Any) -> None:
    data = graph()
    explain = explainer(
        Toy("gcn", "node").eval(), "node", threshold_config={"threshold_type": "topk", "value": 2}
    )
    found = explain(data.x, data.edge_index, index=torch.tensor([1, 2]))
    assert int((found.edge_mask > 0).sum()) <= 2
    torch.save(found, tmp_path / "found.pt")
    for other in (
        copy.copy(found),
        found.clone(),
        found.cpu(),
        torch.load(tmp_path / "found.pt", weights_only=False),
    ):
        assert isinstance(other, Explanation)
        assert [one.key for one in other.cf2] == [1, 2]
        assert torch.equal(other.each()[1].edge_mask, found.each()[1].edge_mask)


# -- the model, settings, refusals -------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails: bool) -> None:
    model, data = Toy("gcn", "node").train(), graph()
    before = copy.deepcopy(model.state_dict())
    random = torch.random.get_rng_state()
    explain = explainer(model, "node", node_mask_type="attributes")
    if fails:
        x = data.x.clone()
        x[0, 0] = float("nan")
        with pytest.raises(CF2Error, match="finite"):
            explain(x, data.edge_index, index=0)
        model.train()  # Explainer switches to evaluation before it calls an algorithm
    else:
        with torch.no_grad():  # and gradients are ours to switch on
            explain(data.x, data.edge_index, index=0)
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), random)
    for conv in model.convs:
        assert not conv._message_forward_hooks
        assert not conv._propagate_forward_pre_hooks
        assert conv.explain is None


@pytest.mark.parametrize(
    ("algorithm", "wrong", "near"),
    [
        (CF2Explainer, {"epoch": 3}, "epochs"),
        (CF2Explainer, {"sed": 3}, "seed"),
        (CF2Explainer, {"efort": "quick"}, "effort"),
        (CFGNNExplainer, {"betta": 3}, "beta"),
    ],
)
def test_unknown_settings_are_refused_with_the_nearest(
    algorithm: type, wrong: dict[str, Any], near: str
) -> None:
    with pytest.raises(CF2Error, match=f"Did you mean '{near}'"):
        algorithm(**wrong)


def test_settings_are_checked_when_the_algorithm_is_made() -> None:
    with pytest.raises(CF2Error, match="alpha"):
        CF2Explainer(alpha=2)
    with pytest.raises(CF2Error, match="setting"):
        CF2Explainer(relaxed=True, effort="quick")


@pytest.mark.parametrize(
    ("mode", "level", "reason"),
    [("regression", "node", "regression"), ("multiclass_classification", "edge", "not edges")],
)
def test_what_cannot_be_explained_is_refused(
    mode: str, level: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"mode": mode, "task_level": level, "return_type": "raw"}
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="does not support"):
        Explainer(Toy("gcn", "node"), CF2Explainer(), "model", config, edge_mask_type="object")
    assert reason in caplog.text


def test_heterogeneous_graphs_are_refused() -> None:
    algorithm = CF2Explainer()
    explainer(Toy("gcn", "node"), "node", algorithm=algorithm)
    data = graph()
    with pytest.raises(CF2Error, match="homogeneous"):
        algorithm(
            Toy("gcn", "node"), {"a": data.x}, {("a", "to", "a"): data.edge_index}, target=torch.zeros(12)
        )


def test_an_isolated_node_gets_an_empty_explanation() -> None:
    data = Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1], [1, 0]]))
    found = explainer(Toy("gin", "node").eval(), "node")(data.x, data.edge_index, index=torch.tensor([0, 2]))
    assert found.cf2[1].status == "empty"
    assert not found.edge_masks[:, 1].any()


def test_self_loops_are_never_chosen() -> None:
    data = graph()
    loops = torch.arange(12).repeat(2, 1)
    edge_index = torch.cat([loops, data.edge_index], 1)
    found = explainer(Toy("sage", "graph").eval(), "graph", algorithm=CF2Explainer(soft=True))(
        data.x, edge_index
    )
    assert not found.edge_mask[:12].any()
    assert found.edge_mask[12:].any()


def test_directed_edges_can_be_told_apart() -> None:
    model, data = Toy("gin", "node", seed=1).eval(), graph()
    found = explainer(model, "node", algorithm=CF2Explainer(directed=True))(data.x, data.edge_index, index=3)
    assert found.cf2[0].directed
    column = {
        tuple(pair): value for pair, value in zip(data.edge_index.t().tolist(), found.edge_mask.tolist())
    }
    assert any(value != column[head, tail] for (tail, head), value in column.items())
