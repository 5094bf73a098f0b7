"""Patterns as such: canonical forms, occurrences and generalisations, against networkx and RDKit."""

from __future__ import annotations

import random
from collections.abc import Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cf2.patterns.labelled import LabelledGraphs, node_labels
from cf2.patterns.matching import MAX_ROWS_PER_GRAPH, containing, occurrences
from cf2.patterns.pattern import Pattern
from pattern_toys import alike, network, networkx_occurrences

Edges = list[tuple[int, int]]
Drawn = tuple[list[str], Edges, bool]
RING = [(atom, (atom + 1) % 6) for atom in range(6)]


def row(labels: Sequence[str], edges: Sequence[tuple[int, int]], directed: bool = False) -> Pattern:
    """A graph as it is, not in canonical order."""
    return Pattern(tuple(labels), (0,) * len(labels), tuple(edges), ("",) * len(edges), directed)


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> Drawn:
    count = draw(st.integers(2, most))
    directed = draw(st.booleans())
    pairs = [(a, b) for a in range(count) for b in range(count) if (a < b or (directed and a != b))]
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=10, unique=True))
    return draw(st.lists(st.sampled_from("CN"), min_size=count, max_size=count)), edges, directed


def connected(labels: list[str], edges: Edges, directed: bool) -> list[Pattern]:
    return [piece.canonical() for _, piece in row(labels, edges, directed).pieces(range(len(edges)))]


def shuffled(labels: list[str], edges: Edges, seed: int) -> tuple[list[str], Edges]:
    order = random.Random(seed).sample(range(len(labels)), len(labels))
    moved = [(order[a], order[b]) for a, b in edges]
    new = [labels[node] for node in sorted(range(len(labels)), key=order.__getitem__)]
    return new, random.Random(seed).sample(moved, len(moved))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 999))
def test_a_pattern_does_not_depend_on_how_nodes_are_numbered(graph: Drawn, seed: int) -> None:
    labels, edges, directed = graph
    moved = shuffled(labels, edges, seed)
    one, other = (sorted(map(repr, connected(*given, directed))) for given in ((labels, edges), moved))
    assert one == other


@settings(max_examples=150, deadline=None)
@given(graphs(5), graphs(5))
def test_equal_patterns_are_isomorphic_graphs_and_nothing_else(one: Drawn, other: Drawn) -> None:
    for a in connected(*one):
        for b in connected(*other):
            if a.directed == b.directed:
                first, second = (network(p.labels, p.edges, p.directed) for p in (a, b))
                assert (a == b) == nx.is_isomorphic(first, second, alike)


@pytest.mark.parametrize("graph", [nx.petersen_graph(), nx.cubical_graph(), nx.star_graph(9), nx.path_graph(9)])
def test_very_regular_graphs_have_one_form(graph: nx.Graph) -> None:
    forms = {Pattern.make(*shuffled([""] * len(graph), list(graph.edges), seed)) for seed in range(5)}
    assert len(forms) == 1


@settings(max_examples=150, deadline=None)
@given(st.lists(graphs(), min_size=1, max_size=3), st.integers(0, 999))
def test_occurrences_are_those_that_networkx_finds(given_: list[Drawn], seed: int) -> None:
    directed, draw = given_[0][2], random.Random(seed)
    given_ = [graph for graph in given_ if graph[2] == directed]
    joined = LabelledGraphs([row(*graph) for graph in given_], directed)
    pattern = draw.choice(connected(*given_[0]))
    for _ in range(draw.randint(0, 3)):
        pattern = draw.choice([pattern, *pattern.generalisations()])
    found = occurrences(pattern, joined)
    assert not found.undecided.any()
    for k, (labels, edges, _) in enumerate(given_):
        ours = set()
        for edges_of in found.edges()[found.graph == k]:
            pairs = (joined.edges[edge] - joined.ptr[k] for edge in edges_of)
            ours.add(frozenset(tuple(pair.tolist()) if directed else tuple(sorted(pair.tolist())) for pair in pairs))
        assert ours == networkx_occurrences(pattern, network(labels, edges, directed))
        assert bool(containing(pattern, joined)[0][k]) == bool(ours)


def test_edges_of_several_labels_between_two_nodes_are_told_apart() -> None:
    double = Pattern(("C", "N"), (0, 0), ((0, 1), (0, 1)), ("a", "b"))
    joined = LabelledGraphs([double])
    for label, edge in (("a", [[0]]), ("b", [[1]]), (None, [[0]]), ("c", [])):
        assert occurrences(Pattern.make(["C", "N"], [(0, 1)], [label]), joined).edges().tolist() == edge


def test_what_is_more_general_is_contained_wherever_the_special_one_is() -> None:
    ring = Pattern.make(["C"] * 6 + ["N"], [*RING, (0, 6)])
    real = LabelledGraphs([row(["C"] * 6 + ["N"], [*RING, (0, 6)])])
    assert all(occurrences(general, real).contained.all() for general in ring.generalisations())
    assert {general.size for general in ring.generalisations()} == {6, 7}
    assert len(list(ring.generalisations())) == 14
    marked = Pattern.make(["", "", ""], [(0, 1), (1, 2)], marks=[1, 0, 0])  # what is explained is never left out
    assert [general.marks.count(1) for general in marked.generalisations()] == [1]


def test_a_graph_with_too_many_occurrences_is_undecided_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    count, edges = 60, [(0, 1), (1, 2), (2, 3)]
    everything = [(a, b) for a in range(count) for b in range(a)]
    joined = LabelledGraphs([row(["C"] * count, everything), row(["C"] * 4, edges)])
    path = Pattern.make(["C"] * 4, edges)
    assert count * (count - 1) * (count - 2) > MAX_ROWS_PER_GRAPH
    for table_rows in (1_000_000, 1_000):  # at once, and in halves
        monkeypatch.setattr("cf2.patterns.matching.MAX_TABLE_ROWS", table_rows)
        found = occurrences(path, joined)
        assert found.undecided.tolist() == [True, False]
        assert found.contained.tolist() == [False, True]
    assert containing(path, joined)[0].tolist() == [True, True]


def test_smarts_finds_what_the_pattern_finds() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    patterns = [
        Pattern.make(["N", "O", "O"], [(0, 1), (0, 2)]),
        Pattern.make(["C"] * 6 + ["N"], [*RING, (0, 6)]),
        Pattern.make(["C", None, "Cl"], [(0, 1), (1, 2)]),
        Pattern.make(["C"] * 10, [(i, i + 1) for i in range(9)] + [(0, 5), (4, 9)]),
    ]
    smiles = ("O=[N+]([O-])c1ccccc1", "CC(C)(Cl)C", "c1ccc2ccccc2c1", "CCO", "Nc1ccccc1", "C1CC2CCC1CC2[N+](=O)[O-]")
    seen = set()
    for molecule in map(chem.MolFromSmiles, smiles):
        bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
        joined = LabelledGraphs([row([atom.GetSymbol() for atom in molecule.GetAtoms()], bonds)])
        for pattern in patterns:
            ours = bool(occurrences(pattern, joined).contained[0])
            assert molecule.HasSubstructMatch(chem.MolFromSmarts(pattern.smarts)) == ours
            seen.add(ours)
    assert seen == {True, False}


def test_labels_of_features() -> None:
    assert node_labels(np.eye(3)[[2, 0]], ["C", "N", "O"]) == ["O", "C"]
    assert node_labels(np.array([[1.0, 5.0], [2.0, 5.0]])) == ["x0=1", "x0=2"]
    binned = node_labels(np.arange(30.0)[:, None])
    assert (binned[0], binned[-1], len(set(binned))) == ("x0 low", "x0 high", 3)
    assert set(node_labels(np.random.default_rng(0).random((50, 4)))) == {""}
    assert set(node_labels(np.random.default_rng(0).random((50, 90)))) == {""}
    assert node_labels(np.zeros((0, 3))) == []


def test_words_of_atoms_are_written_and_found_as_smarts() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    alcohol = Pattern.make(["C;H2;R0", "O;H1"], [(0, 1)], ["single"])
    assert alcohol.text in ("[CH2;R0]–[OH1]", "[OH1]–[CH2;R0]")
    query = chem.MolFromSmarts(alcohol.smarts)
    found = [chem.MolFromSmiles(text).HasSubstructMatch(query) for text in ("CCO", "CC(C)O", "OC1CC1", "COC")]
    assert found == [True, False, False, False]
    assert alcohol.elements_only == Pattern.make(["C", "O"], [(0, 1)], ["single"])
    hosts = [row(["C;H2;R0", "O;H1;R0"], [(0, 1)]), row(["C;H3;R0", "O;H1;R0"], [(0, 1)])]
    assert containing(Pattern.make(["C;H2", "O"], [(0, 1)]), LabelledGraphs(hosts))[0].tolist() == [True, False]


def test_bonds_are_written_as_chemists_do() -> None:
    carbonyl = Pattern.make(["C", "O"], [(0, 1)], ["double"])
    assert (carbonyl.text, carbonyl.smarts) == ("C=O", "[#6]=[#8]")
    ring = Pattern.make(["C"] * 3, [(0, 1), (1, 2)], ["aromatic", None])
    assert set(ring.smarts or "") >= {":", "~"}
