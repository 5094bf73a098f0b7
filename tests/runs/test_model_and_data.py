"""A model with its data: which keys, what a method needs beside the model, and what a reader needs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ring import KEYS, ring_source, spec_of
from torch_geometric.data import Data

from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.runs.source import ModelAndData
from cf2.samples.models import build

GEM = Spec("gem", seed=0, settings={"k": 2, "epochs": 1})


def with_mask(name: str, mask: torch.Tensor, source: ModelAndData | None = None) -> ModelAndData:
    source = source or ring_source()
    data = source.graphs[0].clone()
    data[name] = mask
    return replace(source, graphs=[data], _targets={})


def graphs_source(count: int = 6, **more: Any) -> ModelAndData:
    """Rings of 4 to 9 nodes; the first edge of each is true."""
    graphs = []
    for nodes in range(4, 4 + count):
        at = torch.arange(nodes)
        ahead = torch.stack([at, (at + 1) % nodes])
        edge_index = torch.cat([ahead, ahead.flip(0)], 1)
        truth = torch.arange(2 * nodes) % nodes == 0
        graphs.append(Data(x=torch.eye(4)[at % 4], edge_index=edge_index, y=torch.tensor([nodes % 2]), truth=truth))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build("gin", task="graph", num_features=4, num_classes=2, hidden=8, layers=2)
    return ModelAndData(model, "graph", graphs, truth=lambda key: graphs[key].truth, **more)  # type: ignore[index]


def test_without_a_word_all_keys_are_explained_or_those_of_the_test_set() -> None:
    assert ring_source().keys() == list(range(40))
    assert graphs_source().keys() == list(range(6))
    assert with_mask("test_mask", torch.arange(40) > 37).keys() == [38, 39]
    assert with_mask("test_mask", torch.arange(40)).keys() == list(range(40))  # not a mask
    assert replace(ring_source(), keys_to_explain=lambda: [3, 1]).keys() == [3, 1]


def test_one_graph_can_be_explained_as_a_whole() -> None:
    whole = Spec(level="graph")
    source = ring_source()
    assert (source.targets(whole).level, source.keys(whole)) == ("graph", [0])
    assert source.targets(Spec()).level == "node"
    with pytest.raises(CF2Error, match='one graph for level="node"'):
        graphs_source().targets(Spec(level="node"))


def test_the_graph_is_indexed_once_per_reading_of_its_edges() -> None:
    source = ring_source()
    assert source.targets(spec_of()) is source.targets(Spec("gradient"))
    assert source.targets(spec_of(directed=True)) is not source.targets(spec_of())


def test_a_request_has_the_labels_of_its_keys() -> None:
    assert ring_source().request([2, 5], spec_of()).labels == {2: 2, 5: 2}
    assert graphs_source().request([0, 3], spec_of()).labels == {0: 0, 3: 1}


# -- what a method needs --------------------------------------------------------------------------------------


def test_a_trained_method_is_trained_on_what_is_not_explained() -> None:
    source = ring_source()
    assert source.needed(GEM, KEYS).facts["instances"] == 20
    assert source.needed(GEM, list(range(37))).facts["instances"] == 3
    masked = with_mask("train_mask", torch.arange(40) < 5)
    assert masked.needed(GEM, [0, 39]).facts["instances"] == 4
    chosen = replace(source, keys_to_train_on=lambda: [1, 2])
    assert chosen.needed(GEM, [1]).facts["instances"] == 2  # the source knows what it says
    assert graphs_source().needed(GEM, [0, 1]).facts["instances"] == 4


def test_where_nothing_is_left_to_train_on_that_is_said() -> None:
    with pytest.raises(CF2Error, match=r"train the method on, besides the explained ones, but got none\. Explain"):
        ring_source().needed(GEM, list(range(40)))
    with pytest.raises(CF2Error, match="besides the explained ones"):
        with_mask("train_mask", torch.arange(40) < 2).needed(GEM, [0, 1])


def test_a_training_has_the_options_of_its_request() -> None:
    source = ring_source()
    plain, directed = (source.needed(replace(GEM, directed=which), KEYS) for which in (None, True))
    assert directed.facts["evaluations"] > plain.facts["evaluations"]  # twice as many units to remove


def test_truth_is_given_by_key_or_said_to_be_unknown() -> None:
    source = graphs_source(name="rings")
    truth = source.needed(Spec("truth"), [2, 0])
    assert list(truth) == [2, 0]
    assert truth[0].tolist() == [[0, 1], [1, 0]]
    with Session(source.request([2, 0], Spec("truth"), truth)) as session:
        found = session.explain([2, 0])
    assert [e.chosen("edges").tolist() for e in found] == [[[0, 1]]] * 2
    with pytest.raises(CF2Error, match="true explanation of node 0 of your own data to be known, but got none"):
        ring_source().needed(Spec("truth"), KEYS)


# -- what a reader needs --------------------------------------------------------------------------------------


def test_the_context_has_names_truth_and_molecules_and_is_json() -> None:
    source = graphs_source(class_names=("even", "odd"), model_line="a GIN", name="rings", atoms=("C", "O", "N", "F"))
    source.graphs[1].bond = torch.ones(10, dtype=torch.long)
    context = json.loads(json.dumps(source.context([0, 1])))
    assert (context["class_names"], context["model"], context["dataset"]) == (["even", "odd"], "a GIN", "rings")
    assert context["truth"] == {"0": [[0, 1], [1, 0]], "1": [[0, 1], [1, 0]]}
    assert context["graphs"]["0"] == {"labels": ["C", "O", "N", "F"]}
    bonds = np.array(context["graphs"]["1"]["bonds"])
    assert np.array_equal(bonds[:, :2].T, source.graphs[1].edge_index)
    assert set(bonds[:, 2]) == {1}
    assert set(ring_source().context(KEYS)) == {"class_names", "model", "dataset"}
