"""A graph made from nothing: the widest margin there is among all small graphs, under the rules of the data."""

from __future__ import annotations

from itertools import combinations, product

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2.patterns.labelled import LabelledGraphs
from cf2.patterns.matching import distances
from cf2.patterns.pattern import Pattern
from pattern_toys import COLUMNS, KINDS, Path, made
from toys import GraphNet, model_state, same_state

GRAPHS = [made(KINDS, number, number % 2 == 0) for number in range(20)]


def joined_kinds(graph: Data) -> set[tuple[int, ...]]:
    kinds = graph.x.argmax(1).tolist()
    return {tuple(sorted((kinds[a], kinds[b]))) for a, b in graph.edge_index.t().tolist()}


def degrees(graph: Data) -> list[tuple[int, int]]:
    """The kind and the number of neighbours of every node."""
    counts = torch.bincount(graph.edge_index[0], minlength=graph.num_nodes).tolist()
    return list(zip(graph.x.argmax(1).tolist(), counts))


def test_it_has_what_the_model_looks_for_and_keeps_to_the_rules() -> None:
    model = Path(*KINDS)
    before = model_state(model)
    best = cf2.prototype(model, GRAPHS, 1, nodes=6)
    assert same_state(before, model_state(model))
    assert best.probabilities[1] > 0.99
    assert {"x0", "x1", "x2"} <= set(best.pattern.labels)
    assert joined_kinds(best.graph) <= set().union(*map(joined_kinds, GRAPHS))
    most = {kind: max(n for graph in GRAPHS for k, n in degrees(graph) if k == kind) for kind in range(COLUMNS)}
    assert all(count <= most[kind] for kind, count in degrees(best.graph))
    assert nx.is_forest(nx.Graph(best.graph.edge_index.t().tolist())), "no real graph has a ring"
    assert best.to_dict()["pattern"]["nodes"] == list(best.pattern.labels)
    assert "Prototype of class 1" in repr(best)


def test_directed_graphs_grow_directed_edges_to_and_from_a_node() -> None:
    one_way = [Data(x=graph.x, edge_index=graph.edge_index[:, :-1]) for graph in GRAPHS]
    best = cf2.prototype(Path(*KINDS), one_way, 1, nodes=5)
    assert best.pattern.directed
    assert best.probabilities[1] > 0.99


def test_no_small_graph_has_a_wider_margin() -> None:
    """All graphs of at most 3 nodes that the rules allow, one by one through the raw model."""
    model = GraphNet("gin", features=2, seed=3)
    x = torch.eye(2)
    full = [(a, b) for a in range(4) for b in range(a)]
    edges = torch.tensor(full).t()
    data = [Data(x=x[[0, 0, 1, 1]], edge_index=torch.cat([edges, edges.flip(0)], 1))]  # everything is allowed
    best = cf2.prototype(model, data, 1, nodes=3, width=50)
    widest = -1.0
    for count in (1, 2, 3):
        pairs = list(combinations(range(count), 2))
        for kinds in product(range(2), repeat=count):
            for number in range(len(pairs) + 1):
                for chosen in combinations(pairs, number):
                    if count > 1 and not nx.is_connected(nx.Graph([*chosen, *((n, n) for n in range(count))])):
                        continue
                    ends = torch.tensor([*chosen, *((b, a) for a, b in chosen)], dtype=torch.long).reshape(-1, 2).t()
                    said = model(x[list(kinds)], ends, torch.zeros(count, dtype=torch.long))[0].detach().softmax(0)
                    widest = max(widest, float(said[1] - said[0]))
    assert best.margin == pytest.approx(widest, abs=1e-5)


def test_a_real_graph_is_at_no_distance_from_itself() -> None:
    real = []
    for graph in GRAPHS[:4]:
        pairs = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].t().tolist()
        real.append(Pattern.make([f"x{kind}" for kind in graph.x.argmax(1).tolist()], list(map(tuple, pairs))))
    for number, pattern in enumerate(real):
        far = distances(pattern, LabelledGraphs(real))
        assert far[number] == 0.0
        assert ((far >= 0) & (far <= 1)).all()


@pytest.mark.parametrize(("name", "asked"), [("target", {"target": 7}), ("nodes", {"target": 1, "nodes": 0})])
def test_bad_input_is_refused(name: str, asked: dict[str, int]) -> None:
    with pytest.raises(cf2.CF2Error, match=f"`{name}`"):
        cf2.prototype(Path(*KINDS), GRAPHS, **asked)
