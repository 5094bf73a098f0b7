"""Noise for questions of stability: edges that are added to a graph at random such that its prediction stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data

TRIES = 50  # random choices of edges, of which one must keep the prediction


def absent_pairs(graph: Data) -> Tensor:
    """All pairs of two nodes that no edge joins, int64 [2, pairs], the smaller node first."""
    nodes = int(graph.num_nodes or 0)
    joined = torch.eye(nodes, dtype=torch.bool)
    joined[graph.edge_index[0], graph.edge_index[1]] = True
    return (~(joined | joined.t())).triu(1).nonzero().t()


def with_noise(
    predict: Callable[[Sequence[Data]], Tensor], graph: Data, count: int, draw: torch.Generator
) -> Data | None:
    """The graph with `count` more undirected edges and the same prediction; None if the tries run out.

    Parameters
    ----------
    predict : callable
        Gives the class of each of some graphs, int64 [graphs].
    graph : Data
        A graph with `x` and `edge_index`; what else it holds is left out of the new one.
    count : int
        How many edges are added, each between two nodes that none joins.
    draw : torch.Generator
        Where the pairs are drawn from.

    Returns
    -------
    Data or None
        `x`, and `edge_index` with both directions of the new edges behind the columns of the old ones.
    """
    absent = absent_pairs(graph)
    if absent.size(1) < count:
        return None
    made = []
    for _ in range(TRIES):
        new = absent[:, torch.randperm(absent.size(1), generator=draw)[:count]]
        made.append(Data(x=graph.x, edge_index=torch.cat([graph.edge_index, new, new.flip(0)], 1)))
    same = (predict(made) == predict([graph])).nonzero().view(-1)
    return made[int(same[0])] if len(same) else None
