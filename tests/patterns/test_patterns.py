"""Patterns of a class: planted ones are found, and what is said of them is true by brute force."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data

import cf2
from cf2.patterns.pattern import Pattern
from cf2.patterns.summary import Patterns, SummaryOptions
from pattern_toys import (
    COLUMNS,
    KINDS,
    Both,
    Either,
    Path,
    data_of,
    made_of_two,
    network,
    networkx_occurrences,
    planted,
    says,
)
from toys import model_state, same_state

Planted = tuple[nn.Module, list[Data], Any]


@pytest.fixture(scope="module")
def toy() -> Planted:
    return planted(KINDS, 90, 30)


def labelled(kinds: tuple[int, ...]) -> Pattern:
    return Pattern.make([f"x{kind}" for kind in kinds], [(i, i + 1) for i in range(len(kinds) - 1)])


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(COLUMNS)), st.integers(0, 10_000))
def test_a_planted_pattern_is_found_with_precision_and_recall_1(order: list[int], seed: int) -> None:
    kinds = (order[0], order[1], order[2])
    model, graphs, found = planted(kinds, seed)
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
    model, graphs = Both(*KINDS), [made_of_two(seed + number) for number in range(64)]
    patterns = cf2.explain(model, graphs, range(0, 64, 2)).patterns(model, graphs)
    assert {one.pattern for one in patterns.of(1)} == {labelled((0, 1)), labelled((2, 3))}
    for one in patterns.of(1):
        assert (one.coverage.value, one.sufficiency.value) == (1.0, 0.0)
        assert one.precision.value < 1.0
    jointly = patterns.about["jointly"][1]
    assert [jointly[name].value for name in ("coverage", "precision", "sufficiency")] == [1.0, 1.0, 1.0]
    assert "all of them" in repr(patterns)


def test_relabelled_graphs_give_the_same_patterns() -> None:
    model, graphs, found = planted(KINDS, 5)
    moved = []
    for number, graph in enumerate(graphs):
        order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(number))
        moved.append(Data(x=graph.x[order], edge_index=order.argsort()[graph.edge_index]))
    again = cf2.explain(model, moved, range(0, len(graphs), 2))
    assert found.patterns(model, graphs).to_dict() == again.patterns(model, moved).to_dict()


def stays(model: nn.Module, graph: Data, pattern: Pattern, keep: bool) -> bool:
    """Whether the raw model still says class 1 when all occurrences are removed, or nothing else is kept."""
    host = network([f"x{int(row.argmax())}" for row in graph.x], graph.edge_index.t().tolist())
    inside = frozenset[Any]().union(*networkx_occurrences(pattern, host))
    rest = [(tuple(sorted(pair)) in inside) == keep for pair in graph.edge_index.t().tolist()]
    return says(model, Data(x=graph.x, edge_index=graph.edge_index[:, torch.tensor(rest, dtype=torch.bool)])) == 1


@pytest.mark.parametrize("kinds", [(0, 1), (1, 2), (0, 1, 2)])
def test_the_tests_of_a_given_pattern_by_brute_force(toy: Planted, kinds: tuple[int, ...]) -> None:
    model, graphs, found = toy
    pattern = labelled(kinds)
    patterns = found.patterns(model, graphs, given=[pattern], held_out=0.6, seed=3)
    one = next(p for p in patterns if p.pattern == pattern)
    options = SummaryOptions(held_out=0.6, seed=3)
    tested = [graph for key, graph in enumerate(graphs) if options.is_test(key) and says(model, graph) == 1]
    assert patterns.about["tested"][1] == len(tested) > 3
    assert one.coverage.value == 1.0
    assert one.necessity.value == 1 - np.mean([stays(model, graph, pattern, keep=False) for graph in tested])
    assert one.sufficiency.value == np.mean([stays(model, graph, pattern, keep=True) for graph in tested])
    assert one.precision.value == pytest.approx(len(tested) / one.contained)


def test_what_the_model_needs_is_not_left_out_though_less_is_as_precise() -> None:
    """Either of two neighbours is enough, so both are necessary, though none ever comes without the other."""
    pairs = [(0, 1), (1, 2), (2, 3), (2, 4)]
    graphs = [data_of([4, 4, *kinds], pairs) for kinds in ([0, 1, 2], [0, 3, 3]) * 20]
    model = Either(*KINDS)
    found = cf2.explain(model, graphs, range(0, 40, 2))
    (one,) = found.patterns(model, graphs).of(1)
    assert one.pattern == Pattern.make(["x0", "x1", "x2"], [(0, 1), (0, 2)])
    assert (one.precision.value, one.necessity.value) == (1.0, 1.0)


def test_an_imprecise_pattern_is_not_offered_and_it_is_said(toy: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    model, graphs, found = toy
    monkeypatch.setattr("cf2.patterns.summary.MIN_PRECISION", 1.01)
    patterns = found.patterns(model, graphs)
    assert not patterns.of(1)
    assert "class 1: `x1(–x0)–x2` is in" in repr(patterns)
    assert "so it is left out" in patterns.about["notes"][-1]


def test_features_that_give_no_labels_are_noted() -> None:
    stream = torch.Generator().manual_seed(0)
    ends = data_of([0] * 6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]).edge_index
    graphs = [Data(x=torch.rand(6, COLUMNS, generator=stream) + 0.5, edge_index=ends) for _ in range(12)]
    found = cf2.explain(Path(*KINDS), graphs)
    assert "not one-hot" in repr(found.patterns(Path(*KINDS), graphs))


def test_without_a_model_patterns_are_counted_and_it_says_so(toy: Planted) -> None:
    patterns = toy[2].patterns()
    assert patterns[0].coverage is not None
    assert patterns[0].necessity is None
    assert "No model was run" in repr(patterns)
    assert list(patterns.to_pandas()["class"]) == ["class 1"] * len(patterns)


def test_the_same_call_gives_the_same_and_leaves_the_model_and_the_data_as_they_were(toy: Planted) -> None:
    model, graphs, found = toy
    before, copies = model_state(model), [graph.clone() for graph in graphs]
    one, other = found.patterns(model, graphs, most=4), found.patterns(model, graphs, most=4)
    assert repr(one) == repr(other)
    assert same_state(before, model_state(model))
    assert all(torch.equal(a.x, b.x) and torch.equal(a.edge_index, b.edge_index) for a, b in zip(graphs, copies))
    assert found.patterns(model, graphs, held_out=0.0).about["tested"] == {}


def test_nodes_are_anchored_at_what_is_explained() -> None:
    from cf2.samples.sources import from_dataset

    source = from_dataset("tree-cycles")
    found = cf2.explain(source.model, source.graphs[0], source.keys()[:24], effort="quick")
    patterns = found.patterns(source.model, source.graphs[0], most=120)
    assert all(one.pattern.marks.count(1) == 1 for one in patterns)
    assert patterns[0].precision.value > 0.9
    assert patterns[0].necessity.value > 0.8 > patterns[0].chance.value
    by_class = found.patterns(source.model, source.graphs[0], most=60, labels="class")
    assert {label for label in by_class[0].pattern.labels if label} <= {"class 0", "class 1"}


def test_a_slice_keeps_what_is_known_and_a_file_gives_everything_back(toy: Planted, tmp_path: FilePath) -> None:
    model, graphs, found = toy
    patterns = found.patterns(model, graphs, given=[labelled((0, 1))])
    assert (patterns[1:].items, patterns[1:].about) == (patterns.items[1:], patterns.about)
    with pytest.raises(IndexError, match="below 2"):
        patterns[2]
    with pytest.raises(cf2.CF2Error, match="an index or a slice"):
        patterns["first"]
    read = Patterns.load(patterns.save(tmp_path / "patterns.json"), patterns.context)
    assert (repr(read), read.to_dict(), read.about) == (repr(patterns), patterns.to_dict(), patterns.about)
    assert "<svg" in read._repr_html_()
    assert "No patterns" in read[:0]._repr_html_()


@pytest.mark.parametrize(
    ("asked", "words"),
    [({"labels": "colour"}, "`labels`"), ({"held_out": 1.0}, "held_out"), ({"given": ["N-O"]}, "`given`")],
)
def test_bad_options_are_refused_in_words(toy: Planted, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(cf2.CF2Error, match=words):
        toy[2].patterns(**asked)


def test_bad_input_is_refused_in_words(toy: Planted) -> None:
    model, graphs, found = toy
    with pytest.raises(cf2.CF2Error, match="a model with its data"):
        found.patterns(model)
    with pytest.raises(cf2.CF2Error, match="explanations with edges"):
        cf2.explain(model, graphs, [0], units="features").patterns()
