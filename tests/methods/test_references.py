"""The upper reference: the truth is what it is given."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import cf2
from methods_toys import STAR, Lights, edges


def test_truth_needs_the_true_edges() -> None:
    (one,) = cf2.explain(Lights(), STAR, [0], method="truth", trained={0: [(2, 0), (3, 0)]})
    assert edges(one) == {(0, 2), (0, 3)}
    assert cf2.explain(Lights(), STAR, [0], method="truth", trained={0: []})[0].size == 0
    with pytest.raises(cf2.CF2Error, match=r"trained=\{key: pairs"):
        cf2.explain(Lights(), STAR, [0], method="truth")
    with pytest.raises(cf2.CF2Error, match="true edges of 6"):
        cf2.explain(Lights(), STAR, [6], method="truth", trained={0: []})
    with pytest.raises(cf2.CF2Error, match="scores, edges, but got features"):
        cf2.explain(Lights(), STAR, [0], method="truth", trained={0: []}, units="features")


def test_directions_are_kept_apart_where_the_graph_does() -> None:
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[1, 2, 0], [0, 0, 1]]))
    (one,) = cf2.explain(Lights(), data, [0], method="truth", trained={0: [(0, 2), (1, 0)]})
    assert one.directed
    assert edges(one) == {(1, 0)}
