"""GISST: edges and columns that matter get high probabilities, learnt together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

import cf2
from methods_toys import edges
from toys import NodeNet, random_graph


class Bright(torch.nn.Module):
    """Says 1 of a node while its neighbours' first features add up to more than 1; the others are noise."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = SimpleConv(aggr="sum")

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        total = self.sum(x, edge_index)[:, 0]
        return torch.stack([torch.ones_like(total), total], 1) * 4


@pytest.fixture(scope="module")
def lit() -> tuple[Data, list[int]]:
    """Stars of six rays, two of them bright, with a column of noise beside the light."""
    draw = np.random.default_rng(1)
    pairs, x, middles = [], [], []
    for _ in range(20):
        middle = len(x)
        middles.append(middle)
        x.append([0.0, 1.0, 1.0])
        for place in draw.permutation(6):
            pairs.append((middle, len(x)))
            x.append([1.0 if place < 2 else 0.0, draw.normal(), 1.0])
    both = torch.tensor(pairs + [(b, a) for a, b in pairs]).t().contiguous()
    return Data(x=torch.tensor(x, dtype=torch.float32), edge_index=both), middles


@pytest.fixture(scope="module")
def trained(lit: tuple[Data, list[int]]) -> cf2.methods.trained.Trained:
    data, middles = lit
    return cf2.fit(Bright(), data, middles[:12], method="gisst", epochs=150, lr=0.03, feature_size=0.3, k=2)


def test_the_bright_edges_are_found(lit: tuple[Data, list[int]], trained: cf2.methods.trained.Trained) -> None:
    data, middles = lit
    for e in cf2.explain(Bright(), data, middles[12:], method="gisst", trained=trained):
        rays = {b for a, b in data.edge_index.t().tolist() if a == e.key}
        assert {node for _, node in edges(e)} == {node for node in rays if data.x[node, 0]}
        assert e.sufficient
        assert e.necessary


def test_the_column_that_counts_is_found(lit: tuple[Data, list[int]], trained: cf2.methods.trained.Trained) -> None:
    data, middles = lit
    for e in cf2.explain(Bright(), data, middles[12:], method="gisst", trained=trained, units="columns", k=1):
        assert e.chosen("columns")[:, 1].tolist() == [0]
    both = cf2.explain(
        Bright(), data, middles[12:], method="gisst", trained=trained, units=("edges", "features"), search=True
    )
    assert all(e.status == "found" for e in both)
    (one,) = cf2.explain(Bright(), data, middles[:1], method="gisst", trained=trained, units=("edges", "features"))
    by_column = {}
    for (_, column), score in zip(one.units.of("features").tolist(), one.scores[one.units.where("features")].tolist()):
        by_column.setdefault(column, set()).add(score)
    assert all(len(scores) == 1 for scores in by_column.values())  # an entry has the probability of its column


def test_integer_features_are_left_alone() -> None:
    data = random_graph(12, 16, seed=4)
    data.x = data.x.round().long().abs()

    class Embedded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.net = torch.nn.Embedding(10, 4), NodeNet("gin")

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.net(self.table(x[:, 0]), edge_index)

    model = Embedded()
    trained = cf2.fit(model, data, range(6), method="gisst", epochs=2, k=2)
    assert all(e.size == min(2, e.num_units) for e in cf2.explain(model, data, [7, 8], method="gisst", trained=trained))


def test_other_data_are_refused(trained: cf2.methods.trained.Trained) -> None:
    with pytest.raises(cf2.CF2Error, match="with node states of width 3"):
        cf2.explain(Bright(), random_graph(8, 12, features=5), [0], method="gisst", trained=trained)
