"""The torch_geometric drop-in: edges as a sparse matrix (`adj_t`), and typed explanations one by one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.explain.metric import fidelity
from torch_geometric.transforms import ToSparseTensor

import cf2
from cf2.errors import CF2Error
from pyg_toys import make_explainer, make_graph, make_model, typed_explainer
from toys import same_results
from typed_toys import BACK, LIKES, graph, kept, model, zeroed

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


class SparseTensor:
    """As torch_sparse has it: no Tensor, `device` is a method."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def device(self) -> torch.device:
        return self.matrix.device

    def to_torch_sparse_coo_tensor(self) -> Tensor:
        return self.matrix.to_sparse_coo()


def transposed(edge_index: Tensor, nodes: int, layout: torch.layout) -> Tensor:
    tail, head = edge_index
    return torch.zeros(nodes, nodes).index_put((head, tail), torch.tensor(1.0)).to_sparse(layout=layout)


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_edges_may_be_a_sparse_matrix(layout: torch.layout, foreign: bool) -> None:
    net, data = make_model("gin", "node", seed=2), make_graph()
    stay = torch.arange(data.num_edges) % 4 > 0  # so that a matrix and its transpose differ
    ends = data.edge_index[:, stay]
    matrix: Any = transposed(ends, data.num_nodes, layout)
    explain = make_explainer(net, "node", explanation_type="phenomenon")
    target = net(data.x, ends).argmax(1)
    plain = explain(data.x, ends, target=target, index=torch.tensor([1, 3, 5]))
    found = explain(data.x, SparseTensor(matrix) if foreign else matrix, target=target, index=torch.tensor([1, 3, 5]))
    assert plain.edge_mask.any()
    chosen = [{tuple(p) for p in e.edge_index[:, e.edge_mask > 0].t().tolist()} for e in (plain, found)]
    assert chosen[0] == chosen[1]
    assert found.edge_index.shape == ends.shape
    for one in found.each():
        assert fidelity(explain, one) == (float(one.necessary), float(not one.sufficient))
    assert found.get_explanation_subgraph().num_edges == int(found.edge_mask.sum())


def test_a_matrix_of_other_numbers_is_refused() -> None:
    data = make_graph()
    explain = make_explainer(make_model("gin", "node"), "node", explanation_type="phenomenon")
    with pytest.raises(CF2Error, match=r"matrix of ones.*`edge_weight`"):
        explain(data.x, 2 * transposed(data.edge_index, 12, torch.sparse_coo), target=torch.zeros(12).long(), index=1)


def test_types_may_have_sparse_matrices() -> None:
    data, net = graph(1), model("graph", 3, 1)
    sparse = ToSparseTensor()(copy.copy(data))
    assert "edge_index" not in sparse[LIKES]
    options: dict[str, Any] = {"nodes": range(5), "node_type": "user", "effort": "quick"}
    mine = cf2.explain(net, data, **options)
    assert any(e.size for e in mine)
    assert same_results(list(mine), list(cf2.explain(net, sparse, **options)))
    explain = typed_explainer(net, "node", kind="phenomenon")
    target = net(data.x_dict, data.edge_index_dict).argmax(1)
    found = explain(data.x_dict, sparse.adj_t_dict, target=target)
    for one, e in zip(found.each(), mine):
        chosen = {kind: one[kind].edge_index[:, one[kind].edge_mask > 0].t().tolist() for kind in one.edge_types}
        assert {kind: sorted(pairs) for kind, pairs in chosen.items() if pairs} == {
            kind: sorted(pairs.tolist()) for kind, pairs in e.edges.items()
        }
    sparse[LIKES].adj_t = 2 * sparse[LIKES].adj_t
    with pytest.raises(CF2Error, match=r"likes.* to be a sparse torch matrix of ones"):
        cf2.explain(net, sparse, **options)


def test_each_typed_explanation_has_its_own_masks_and_verdicts() -> None:
    data, net = graph(1), model("graph", 3, 1)
    explain = typed_explainer(net, "node", node_mask_type="attributes")
    together = explain(data.x_dict, data.edge_index_dict)
    before = net(data.x_dict, data.edge_index_dict).argmax(1)
    parts = together.each()
    assert [int(part.index) for part in parts] == list(range(5))
    for node, part in enumerate(parts):
        (e,) = part.cf2
        edges = {kind: data[kind].edge_index[:, part[kind].edge_mask > 0].t().tolist() for kind in data.edge_types}
        entries = {name: part[name].node_mask.nonzero().tolist() for name in data.node_types}
        for inside, verdict in ((True, part.sufficient), (False, not part.necessary)):
            cut = zeroed(kept(data, edges, inside), entries, inside)
            assert verdict == bool(net(cut.x_dict, cut.edge_index_dict)[node].argmax() == before[node])
        assert (part.sufficient, part.necessary) == (e.sufficient, e.necessary)
    for kind in data.edge_types:
        union = torch.stack([part[kind].edge_mask for part in parts]).amax(0)
        assert torch.equal(union, together[kind].edge_mask)


def test_the_subgraph_of_a_typed_explanation_has_the_ends_of_its_edges() -> None:
    """Where no feature of a node was chosen, but an edge at it."""
    data, net = graph(1), model("graph", 3, 1)
    explain = typed_explainer(net, "node", node_mask_type="attributes")
    found = explain(data.x_dict, data.edge_index_dict, index=0)
    for kind, ends in data.edge_index_dict.items():
        found[kind].edge_mask = torch.zeros(ends.size(1))
    for name in data.node_types:
        found[name].node_mask = torch.zeros_like(data[name].x)
    found[LIKES].edge_mask[1] = found[BACK].edge_mask[1] = 1  # 0 likes 1
    found["tag"].node_mask[2, 0] = 1
    cut = found.get_explanation_subgraph()
    assert {name: cut[name].num_nodes for name in cut.node_types} == {"user": 1, "item": 1, "tag": 1}
    assert cut[LIKES].edge_index.tolist() == [[0], [0]]
    assert torch.equal(cut["item"].x, data["item"].x[[1]])
