"""Patterns of a class: planted ones are found, and what is said of them is true by brute force."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networkx.algorithms.isomorphism import GraphMatcher
from torch import nn
from torch_geometric.data import Data

import cf2
from cf2.patterns.pattern import Pattern
from pattern_toys import COLUMNS, Both, Path, made, made_of_two
from toys import model_state, same_state


def labelled(kinds: tuple[int, ...]) -> Pattern:
    return Pattern.make([f"x{kind}" for kind in kinds], [(i, i + 1) for i in range(len(kinds) - 1)])


def explained(kinds: tuple[int, int, int], seed: int, count: int = 64) -> tuple[nn.Module, list[Data], Any]:
    model = Path(*kinds)
    graphs = [made(kinds, seed + number, number % 2 == 0) for number in range(count)]
    return model, graphs, cf2.explain(model, graphs, range(0, count, 2))


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(COLUMNS)), st.integers(0, 10_000))
def test_a_planted_pattern_is_found_with_precision_and_recall_1(order: list[int], seed: int) -> None:
    kinds = (order[0], order[1], order[2])
    model, graphs, found = explained(kinds, seed)
    patterns = found.patterns(model, graphs)
    (one,) = patterns.of(1)
    assert one.pattern == labelled(kinds)
    for share in (one.coverage, one.precision, one.necessity, one.sufficiency, one.sufficiency_one):
        assert share.value == 1.0
    assert one.undecided == 0
    assert patterns.about["empty"][1].value == 0.0
    assert patterns.about["found_on"] + sum(patterns.about["tested"].values()) <= len(graphs)


@pytest.mark.parametrize("seed", [0, 1000, 2000])
def test_two_things_that_are_needed_together_are_two_patterns_and_tested_jointly(seed: int) -> None:
    model, graphs = Both(), [made_of_two(seed + number) for number in range(64)]
    found = cf2.explain(model, graphs, range(0, 64, 2))
    patterns = found.patterns(model, graphs)
    assert {one.pattern for one in patterns.of(1)} == {labelled((0, 1)), labelled((2, 3))}
    for one in patterns.of(1):
        assert one.coverage.value == 1.0
        assert one.precision.value < 1.0
        assert one.sufficiency.value == 0.0
    jointly = patterns.about["jointly"][1]
    assert [jointly[name].value for name in ("coverage", "precision", "sufficiency")] == [1.0, 1.0, 1.0]
    assert "all of them" in repr(patterns)


def test_relabelled_graphs_give_the_same_patterns() -> None:
    model, graphs, found = explained((0, 1, 2), 5)
    moved = []
    for number, graph in enumerate(graphs):
        order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(number))
        back = order.argsort()
        moved.append(Data(x=graph.x[order], edge_index=back[graph.edge_index]))
    again = cf2.explain(model, moved, range(0, len(graphs), 2))
    one, other = found.patterns(model, graphs).to_dict(), again.patterns(model, moved).to_dict()
    assert one == other


def raw_share(model: nn.Module, graphs: list[Data], pattern: Pattern, keys: list[int], keep: bool) -> list[bool]:
    """Whether the raw model still says class 1 when all occurrences are removed, or nothing else is kept."""
    said = []
    for key in keys:
        graph = graphs[key]
        host = nx.Graph()
        host.add_nodes_from((n, {"label": f"x{int(row.argmax())}"}) for n, row in enumerate(graph.x))
        host.add_edges_from(graph.edge_index.t().tolist())
        small = nx.Graph(list(pattern.edges))
        nx.set_node_attributes(small, dict(enumerate(pattern.labels)), "label")
        matcher = GraphMatcher(host, small, lambda a, b: b["label"] is None or a["label"] == b["label"])
        inside = set()
        for mapping in matcher.subgraph_monomorphisms_iter():
            place = {node: image for image, node in mapping.items()}
            inside |= {frozenset((place[a], place[b])) for a, b in pattern.edges}
        stay = [(frozenset(pair) in inside) == keep for pair in graph.edge_index.t().tolist()]
        rest = graph.edge_index[:, torch.tensor(stay, dtype=torch.bool)]
        said.append(int(model(graph.x, rest, torch.zeros(len(graph.x), dtype=torch.long))[0].argmax()) == 1)
    return said


@pytest.mark.parametrize("kinds", [(0, 1), (1, 2), (0, 1, 2)])
def test_the_tests_of_a_given_pattern_by_brute_force(kinds: tuple[int, ...]) -> None:
    model, graphs, found = explained((0, 1, 2), 90, 30)
    pattern = labelled(kinds)
    patterns = found.patterns(model, graphs, given=[pattern], held_out=0.6, seed=3)
    one = next(p for p in patterns if p.pattern == pattern)
    from cf2.patterns.summary import SummaryOptions

    options = SummaryOptions(held_out=0.6, seed=3)
    tested = [key for key in range(len(graphs)) if options.is_test(key)]
    batch = [torch.zeros(graph.num_nodes, dtype=torch.long) for graph in graphs]
    of_class = [k for k in tested if int(model(graphs[k].x, graphs[k].edge_index, batch[k])[0].argmax()) == 1]
    assert patterns.about["tested"][1] == len(of_class) > 3
    assert one.coverage.value == 1.0
    assert one.necessity.value == 1 - np.mean(raw_share(model, graphs, pattern, of_class, keep=False))
    assert one.sufficiency.value == np.mean(raw_share(model, graphs, pattern, of_class, keep=True))
    assert one.precision.value == pytest.approx(len(of_class) / one.contained)


def test_without_a_model_patterns_are_counted_and_it_says_so() -> None:
    _, _, found = explained((0, 1, 2), 40)
    patterns = found.patterns()
    assert patterns[0].coverage is not None
    assert patterns[0].necessity is None
    assert "No model was run" in repr(patterns)
    assert list(patterns.to_pandas()["class"]) == ["class 1"] * len(patterns)


def test_the_model_and_the_data_are_left_as_they_were() -> None:
    model, graphs, found = explained((0, 1, 2), 60, 12)
    before, copies = model_state(model), [graph.clone() for graph in graphs]
    found.patterns(model, graphs)
    assert same_state(before, model_state(model))
    assert all(torch.equal(a.x, b.x) and torch.equal(a.edge_index, b.edge_index) for a, b in zip(graphs, copies))


def test_the_split_of_a_key_depends_on_nothing_else() -> None:
    model, graphs, found = explained((0, 1, 2), 70)
    one, other = found.patterns(model, graphs, most=4), found.patterns(model, graphs, most=4)
    assert repr(one) == repr(other)
    assert found.patterns(model, graphs, held_out=0.0).about["tested"] == {}


def test_nodes_are_anchored_at_what_is_explained() -> None:
    from cf2.samples.sources import from_dataset

    source = from_dataset("tree-cycles")
    keys = source.keys()[:24]
    found = cf2.explain(source.model, source.graphs[0], keys, effort="quick")
    patterns = found.patterns(source.model, source.graphs[0], most=120)
    assert all(one.pattern.marks.count(1) == 1 for one in patterns)
    assert patterns[0].precision.value > 0.9
    assert patterns[0].necessity.value > 0.8 > patterns[0].chance.value


def test_bad_input_is_refused_in_words() -> None:
    model, graphs, found = explained((0, 1, 2), 80, 8)
    with pytest.raises(cf2.CF2Error, match="a model with its data"):
        found.patterns(model)
    with pytest.raises(cf2.CF2Error, match="`labels`"):
        found.patterns(model, graphs, labels="colour")
    with pytest.raises(cf2.CF2Error, match="held_out"):
        found.patterns(held_out=1.0)
    with pytest.raises(cf2.CF2Error, match="chose edges"):
        cf2.explain(model, graphs, [0], units="features").patterns()
    with pytest.raises(cf2.CF2Error, match="`given`"):
        found.patterns(given=["N-O"])
