"""torch_geometric's own grid of explainers: every combination works, or is refused in words before it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.explain import Explainer
from torch_geometric.explain.config import ModelConfig
from torch_geometric.nn import GCNConv, global_add_pool

import cf2
from cf2.errors import CF2Error
from cf2.pyg import CF2Explainer, MethodExplainer, VerifiedExplanation, VerifiedHeteroExplanation
from pyg_toys import typed_explainer
from typed_toys import LIKES, graph, model, transformed

LEVELS = ("node", "edge", "graph")
MODES = {
    "binary_classification": ("raw", "probs"),
    "multiclass_classification": ("raw", "probs", "log_probs"),
    "regression": ("raw",),
}
NODE_MASKS = (None, "object", "attributes", "common_attributes")
EDGE_MASKS = (None, "object")
INDICES: tuple[Any, ...] = (None, 1, torch.arange(2))
KINDS = ("model", "phenomenon")


class Net(nn.Module):
    """As in torch_geometric's tests: one model for all levels and modes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.config = config
        self.first = GCNConv(3, 16)
        self.second = GCNConv(16, 7 if config.mode.value == "multiclass_classification" else 1)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        edge_label_index: Tensor | None = None,
    ) -> Tensor:
        x = self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)
        if self.config.task_level.value == "graph":
            x = global_add_pool(x, batch)
        elif self.config.task_level.value == "edge":
            assert edge_label_index is not None
            x = x[edge_label_index[0]] * x[edge_label_index[1]]
        returns = self.config.return_type.value
        if self.config.mode.value == "binary_classification":
            return x.sigmoid() if returns == "probs" else x
        return {"probs": x.softmax(-1), "log_probs": x.log_softmax(-1)}.get(returns, x)


X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 6, 5, 7, 6]])
BATCH = torch.tensor([0, 0, 0, 0, 0, 0, 0, 0])
PAIRS = torch.tensor([[0, 1, 2], [3, 4, 5]])


def configurations() -> Iterator[tuple[str, str, str]]:
    for level, (mode, returns) in product(LEVELS, MODES.items()):
        yield from ((level, mode, one) for one in returns)


def check_grid(net: nn.Module, x: Any, edges: Any, passed: dict[str, Any], config: ModelConfig, make: Any) -> None:
    """Every combination of masks, kinds and `index` fills masks of the right shape, or is refused with a reason."""
    level, mode, returns = config.task_level.value, config.mode.value, config.return_type.value
    count: Counter[str] = Counter()
    with torch.no_grad():
        said = net(x, edges, **passed)
    for node_mask, edge_mask, kind, index in product(NODE_MASKS, EDGE_MASKS, KINDS, INDICES):
        if level == "graph" and isinstance(index, Tensor):
            continue  # there is one graph
        index = 0 if level == "graph" and index == 1 else index
        algorithm = make(isinstance(index, int) and kind == "model")
        try:
            explain = Explainer(net, algorithm, kind, config, node_mask_type=node_mask, edge_mask_type=edge_mask)
        except ValueError:
            count["refused"] += 1
            assert (node_mask is None and edge_mask is None) or (kind == "phenomenon" and mode == "regression")
            continue
        target = None
        if kind == "phenomenon":
            target = said.argmax(-1) if mode.startswith("multi") else (said > (returns == "probs") / 2).long().view(-1)
        found = explain(x, edges, target=target, index=index, **passed)
        count["works"] += 1
        assert isinstance(found, VerifiedHeteroExplanation if isinstance(x, dict) else VerifiedExplanation)
        assert len(found.cf2) == (len(said) if index is None else 1 if isinstance(index, int) else len(index))
        for e in found.cf2:
            assert e.task == {"edge": "pair"}.get(level, level)
            assert e.output == ("regression" if mode == "regression" else "classes")
        if edge_mask is not None:
            for name, ends in edges.items() if isinstance(x, dict) else [(None, edges)]:
                assert (found if name is None else found[name]).edge_mask.shape == (ends.size(1),)
        for name, rows in () if node_mask is None else x.items() if isinstance(x, dict) else [(None, x)]:
            shapes = {"object": (len(rows), 1), "attributes": rows.shape, "common_attributes": (1, rows.size(1))}
            assert (found if name is None else found[name]).node_mask.shape == shapes[node_mask]
    kinds = 2 if level == "graph" else 3  # of `index`
    types = 1 if mode == "regression" else 2
    # of 8 kinds of masks one is none at all
    assert count == {"works": 7 * types * kinds, "refused": (16 - 7 * types) * kinds}


@pytest.mark.parametrize(("level", "mode", "returns"), list(configurations()))
def test_homogeneous(level: str, mode: str, returns: str) -> None:
    config = ModelConfig(mode=mode, task_level=level, return_type=returns)
    passed = {"graph": {"batch": BATCH}, "edge": {"edge_label_index": PAIRS}, "node": {}}[level]

    def make(searched: bool) -> MethodExplainer:
        return CF2Explainer(effort="quick", epochs=1) if searched else CF2Explainer(relaxed=True, epochs=1)

    check_grid(Net(config), X, EDGES, passed, config, make)


def test_verdicts_of_pairs_and_numbers_are_true() -> None:
    for level, mode in product(("node", "edge"), ("binary_classification", "regression")):
        config = ModelConfig(mode=mode, task_level=level, return_type="raw")
        net = Net(config)
        passed = {"edge_label_index": PAIRS} if level == "edge" else {}
        explain = Explainer(net, CF2Explainer(effort="quick"), "model", config, edge_mask_type="object")
        whole = net(X, EDGES, **passed).detach().flatten()
        for part in explain(X, EDGES, **passed).each():
            (e,) = part.cf2
            for keep, verdict in ((part.edge_mask > 0, e.sufficient), (part.edge_mask == 0, not e.necessary)):
                now = float(net(X, EDGES[:, keep], **passed).detach().flatten()[e.key])
                before = float(whole[e.key])
                if mode == "regression":
                    assert e.tolerance == pytest.approx(0.1 * float(whole.max() - whole.min()), rel=1e-4)
                    assert verdict == (abs(now - before) <= e.tolerance)
                else:
                    assert verdict == ((now > 0) == (before > 0))


TYPED: dict[str, dict[str, Any]] = {"node": {"node_type": "user"}, "edge": {"edge_type": LIKES}}


GRAPH_OF_NODE = {name: torch.zeros(count, dtype=torch.long) for name, count in (("user", 5), ("item", 4), ("tag", 3))}


@pytest.mark.parametrize("mode", ["binary_classification", "multiclass_classification", "regression"])
@pytest.mark.parametrize("level", LEVELS)
def test_heterogeneous(level: str, mode: str) -> None:
    config = ModelConfig(mode=mode, task_level=level, return_type="raw")
    net, data = model("graph", 3 if mode.startswith("multi") else 1, 1), graph(1)
    pairs = torch.tensor([[0, 1, 4], [0, 1, 2]])
    passed = {"graph": {"batch_dict": GRAPH_OF_NODE}, "edge": {"edge_label_index": pairs}, "node": {}}[level]

    def make(searched: bool) -> MethodExplainer:
        return CF2Explainer(
            epochs=1, **({"effort": "quick"} if searched else {"relaxed": True}), **TYPED.get(level, {})
        )

    check_grid(net, data.x_dict, data.edge_index_dict, passed, config, make)


class OfGraphs(nn.Module):
    """Graphs by a typed model; what the batch is called differs between people."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.net, self.name = model("graph", 3, 2), name

    def forward(self, x_dict: Any, edge_index_dict: Any, **given: Any) -> Tensor:
        return self.net(x_dict, edge_index_dict, batch_dict=given[self.name])


@pytest.mark.parametrize("name", ["batch_dict", "batch"])
def test_verdicts_of_a_batch_of_typed_graphs_are_true(name: str) -> None:
    graphs = [graph(1), graph(2), graph(3)]
    batch: Any = Batch.from_data_list(graphs)
    net = OfGraphs(name)
    passed = {name: batch.batch_dict}
    explain = typed_explainer(net, "graph")
    found = explain(batch.x_dict, batch.edge_index_dict, **passed)
    before = net(batch.x_dict, batch.edge_index_dict, **passed).argmax(1)
    assert [e.key for e in found.cf2] == list(range(len(graphs)))
    for place, part in enumerate(found.each()):
        chosen = {kind: part[kind].edge_mask > 0 for kind in batch.edge_types}
        own = {kind: batch[kind[0]].batch[ends[0]] == place for kind, ends in batch.edge_index_dict.items()}
        assert not any((chosen[kind] & ~own[kind]).any() for kind in own), "an edge of another graph"
        for inside, verdict in ((True, part.sufficient), (False, not part.necessary)):
            cut = {kind: ends[:, chosen[kind] == inside] for kind, ends in batch.edge_index_dict.items()}
            assert verdict == bool(net(batch.x_dict, cut, **passed)[place].argmax() == before[place])
    assert any(e.size for e in found.cf2)
    mine = cf2.explain(net.net, graphs, effort="quick")
    assert [e.size for e in mine] == [e.size for e in found.cf2]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"user": GRAPH_OF_NODE["user"]}, "for the nodes of each type, user, item, tag"),
        (torch.zeros(12, dtype=torch.long), "for the nodes of each type"),
        ({**GRAPH_OF_NODE, "tag": torch.zeros(7, dtype=torch.long)}, "a graph number for each of 3 nodes"),
        ({**GRAPH_OF_NODE, "tag": torch.ones(3, dtype=torch.long)}, "inside one graph"),
    ],
)
def test_a_batch_of_typed_graphs_that_is_wrong_is_refused(batch: Any, words: str) -> None:
    net, data = model("graph", 3, 1), graph(1)
    algorithm = CF2Explainer()
    typed_explainer(net, "graph", algorithm)
    with pytest.raises(CF2Error, match=words):
        algorithm(net, data.x_dict, data.edge_index_dict, target=torch.zeros(1).long(), batch_dict=batch)


def test_one_typed_graph_needs_no_batch_but_a_model_that_takes_one() -> None:
    net, data, algorithm = model("graph", 3, 2), graph(2), CF2Explainer(effort="quick")
    typed_explainer(net, "graph", algorithm)
    target = net(data.x_dict, data.edge_index_dict, batch_dict=GRAPH_OF_NODE).argmax(1)
    found = algorithm(net, data.x_dict, data.edge_index_dict, target=target)
    (mine,) = cf2.explain(net, [data], effort="quick")
    assert found.cf2[0].edges.keys() == mine.edges.keys()
    assert found.cf2[0].size == mine.size
    with pytest.raises(CF2Error, match=r"one row per graph.*a dictionary of user, item"):
        algorithm(transformed(), data.x_dict, data.edge_index_dict, target=target)


def test_what_cannot_be_known_is_asked_for() -> None:
    data, net = graph(1), model("graph", 3, 1)
    data["tag"].x = torch.randn(5, 3)  # as many as there are users
    explain = typed_explainer(net, "node")
    with pytest.raises(CF2Error, match="node_type="):
        explain(data.x_dict, data.edge_index_dict, index=0)
    explain = typed_explainer(net, "edge")
    pairs = torch.tensor([[0], [1]])
    with pytest.raises(CF2Error, match="edge_type"):
        explain(data.x_dict, data.edge_index_dict, index=0, edge_label_index=pairs)
    explain = typed_explainer(net, "node", CF2Explainer(node_type="user"), mode="regression")
    with pytest.raises(CF2Error, match="target"):
        explain(data.x_dict, data.edge_index_dict, index=0)
    own = MethodExplainer("gradient", k=1, node_type="user", column=2)
    explain = typed_explainer(net, "node", own, mode="regression")
    assert explain(data.x_dict, data.edge_index_dict, index=0).cf2[0].prediction == 2


def test_edges_without_their_pairs_are_refused() -> None:
    config = ModelConfig(mode="binary_classification", task_level="edge", return_type="raw")
    explain = Explainer(Net(config), CF2Explainer(), "phenomenon", config, edge_mask_type="object")
    with pytest.raises(CF2Error, match="edge_label_index"):
        explain(X, EDGES, target=torch.tensor([1]))
