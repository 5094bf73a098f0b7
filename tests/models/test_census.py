"""The shapes of sets: one set of each, all sets of one, and nothing else, against networkx and plain enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cf2.models import shapes as parts
from cf2.models.shapes import Census, Shapes

SAME = nx.algorithms.isomorphism.categorical_node_match("colour", 0)
Set = frozenset[int]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Shapes, list[int]]:
    """A small graph of two colours, and which of its edges may be chosen: most of them."""
    nodes = draw(st.integers(2, 7))
    pairs = list(combinations(range(nodes), 2))
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=9, unique=True))
    colours = draw(st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes))
    held = draw(st.sets(st.integers(0, len(edges) - 1), max_size=2))
    shapes = Shapes(torch.tensor(edges).t().contiguous(), torch.tensor(colours))
    return shapes, [unit for unit in range(len(edges)) if unit not in held]


def alone(shapes: Shapes, chosen: Set) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from((node, {"colour": colour}) for node, colour in enumerate(shapes.colours.tolist()))
    graph.add_edges_from(shapes.pairs[unit] for unit in chosen)
    return graph


def kinds_of(shapes: Shapes, free: list[int], size: int) -> list[set[Set]]:
    """All sets of a size, by shape."""
    found: dict[str, list[tuple[nx.Graph, set[Set]]]] = {}
    for chosen in map(frozenset, combinations(free, size)):
        graph = alone(shapes, chosen)
        known = found.setdefault(nx.weisfeiler_lehman_graph_hash(graph, node_attr="colour"), [])
        match = next((sets for other, sets in known if nx.is_isomorphic(graph, other, node_match=SAME)), None)
        if match is None:
            known.append((graph, {chosen}))
        else:
            match.add(chosen)
    return [sets for known in found.values() for _, sets in known]


def chosen_in(sets: Iterator[np.ndarray]) -> list[Set]:
    return [frozenset(np.flatnonzero(row).tolist()) for row in sets]


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_every_shape_is_met_once_and_all_its_sets_are_known(graph: tuple[Shapes, list[int]]) -> None:
    shapes, free = graph
    census = Census(shapes, free)
    for size in range(min(len(free), 6) + 1):
        level = census.level(size, 10**6)
        assert level is not None
        expected = kinds_of(shapes, free, size)
        found = [chosen_in(census.placements(kinds)) for kinds in level.kinds]
        assert all(len(sets) == len(set(sets)) for sets in found)
        assert {frozenset(sets) for sets in found} == {frozenset(sets) for sets in expected}
        assert len(found) == len(expected)
        assert all(one in sets for one, sets in zip(chosen_in(iter(level.sets)), found))


def test_two_rings_of_three_are_not_one_of_six() -> None:
    """Colours cannot tell them apart, so the renumbering is looked for."""
    three = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]
    six = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]
    edges = sorted({*three, *six})
    shapes = Shapes(torch.tensor(edges).t().contiguous(), torch.zeros(6, dtype=torch.long))
    both = np.array([[edge in ring for edge in edges] for ring in (three, six)])
    assert shapes.keys(both)[0].tolist() == shapes.keys(both)[1].tolist()
    assert not shapes.isomorphic(*both)
    assert shapes.isomorphic(both[1], both[1])
    census = Census(shapes, list(range(len(edges))))
    level = census.level(6, 10**6)
    assert level is not None
    found = [set(chosen_in(census.placements(kinds))) for kinds in level.kinds]
    rings = [frozenset(np.flatnonzero(row).tolist()) for row in both]
    assert not any(rings[0] in sets and rings[1] in sets for sets in found)


def test_connected_sets_that_colours_do_not_tell_apart_are_two_classes() -> None:
    """Two graphs on ten nodes, each a cycle with chords of which every node has two or three edges in the same way."""
    decalin = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (5, 6), (6, 7), (7, 8), (8, 9), (9, 0)]
    pentalene = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (5, 6), (6, 7), (7, 8), (8, 9), (9, 5), (0, 5)]
    edges = sorted({(min(e), max(e)) for e in decalin + pentalene})
    shapes = Shapes(torch.tensor(edges).t().contiguous(), torch.zeros(10, dtype=torch.long))
    both = np.array([[edge in {(min(e), max(e)) for e in one} for edge in edges] for one in (decalin, pentalene)])
    keys = shapes.keys(both)
    assert keys[0].tolist() == keys[1].tolist()
    assert len(set(shapes.classes(both).tolist())) == 2


def test_a_level_that_is_too_large_or_too_hard_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = nx.gnm_random_graph(10, 14, seed=1)
    shapes = Shapes(torch.tensor(list(graph.edges)).t().contiguous(), torch.arange(10) % 3)
    every = list(range(14))
    full = Census(shapes, every).level(5, 10**6)
    assert full is not None
    assert Census(shapes, every).level(5, len(full.sets)) is not None
    assert Census(shapes, every).level(5, len(full.sets) - 1) is None
    monkeypatch.setattr(parts, "MAX_STEPS", 1)
    assert Census(shapes, every).level(5, 10**6) is None
