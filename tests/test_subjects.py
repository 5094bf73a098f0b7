from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from cf2 import datasets, subjects, training
from cf2.errors import CF2Error

OWN = """
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gnn = GCN(3, 4, 2, 2)
    def forward(self, x, edge_index, edge_weight=None):
        return self.gnn(x, edge_index, edge_weight=edge_weight)

def ring(n=8):
    at = torch.arange(n)
    ahead = torch.stack([at, (at + 1) % n])
    return Data(x=torch.eye(3)[at % 3], edge_index=torch.cat([ahead, ahead.flip(0)], 1), y=at % 2)

def load():
    torch.manual_seed(0)
    return Own(), ring()

def with_nodes():
    model, data = load()
    return {"model": model, "data": data, "nodes": [3, 1], "class_names": ["even", "odd"]}

def many():
    return Own(), [ring(5), ring(6)]

def masked():
    model, data = load()
    data.test_mask = torch.arange(8) > 5
    return model, data

def unknown():
    model, data = load()
    return {"model": model, "data": data, "node": [1]}

def too_few():
    return Own()

def no_model():
    return "model", ring()

def no_graphs():
    return Own(), []

def broken():
    return 1 / 0

def random_weights():
    torch.seed()
    return Own(), ring()

number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the current directory, under a name that no other test uses."""
    name = f"own_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / f"{name}_bad.py").write_text("import not_a_module_of_anyone\n")
    (tmp_path / f"{name}_typo.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    return name


def test_a_data_set_comes_with_its_model_and_the_papers_instances() -> None:
    subject = subjects.from_dataset("ba-shapes")
    dataset = subject.dataset
    assert dataset is not None
    assert subject.task == "node"
    assert subject.class_names == tuple(dataset.class_names)
    keys = subject.keys()
    predicted = training.predict(subject.model, dataset)
    assert keys
    assert all(int(dataset.labels[k]) in dataset.positive and int(predicted[k]) in dataset.positive for k in keys)
    _, about = training.shipped("ba-shapes")
    assert set(keys) <= set(datasets.split(dataset, about.split["seed"])[1].tolist())


def test_truth_and_context_agree_with_the_data_set() -> None:
    subject = subjects.from_dataset("ba-shapes")
    key = subject.keys()[0]
    mask = subject.truth(key)
    assert mask is not None
    assert mask.shape == (subject.graphs[0].edge_index.size(1),)
    context = json.loads(json.dumps(subject.context([key])))
    pairs = {tuple(sorted(pair)) for pair in context["truth"][str(key)]}
    assert len(pairs) == 6
    assert context["dataset"] == "ba-shapes"
    assert context["class_names"] == list(subject.class_names)
    base = int((subject.graphs[0].motif < 0).nonzero()[0])
    assert subject.truth(base) is None
    assert "truth" not in subject.context([base])


def test_a_description_restores_the_subject() -> None:
    subject = subjects.from_dataset("ba-shapes")
    again = subjects.restore(json.loads(json.dumps(subject.description)))
    assert again.keys() == subject.keys()
    for one, other in zip(subject.model.state_dict().values(), again.model.state_dict().values()):
        assert torch.equal(one, other)


def test_a_checkpoint_by_path(tmp_path: Path) -> None:
    model, about = training.shipped("ba-shapes")
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    path = training.save(tmp_path / "mine", model, about)
    subject = subjects.from_dataset("ba-shapes", checkpoint=path)
    assert torch.equal(next(subject.model.parameters()), next(model.parameters()))
    training.save(path, training.shipped("ba-shapes")[0], about)
    with pytest.raises(CF2Error, match="same weights of the model"):
        subjects.restore(subject.description)


def test_a_function_of_the_user(own: str) -> None:
    before = list(sys.path)
    subject = subjects.from_function(f"{own}:load")
    assert sys.path == before
    assert (subject.task, len(subject)) == ("node", 8)
    assert subject.keys() == list(range(8))
    assert isinstance(subject.model, nn.Module)
    assert subjects.restore(subject.description).keys() == subject.keys()
    assert subject.context([0])["dataset"] == f"{own}:load"


def test_a_function_may_say_which_nodes_and_name_the_classes(own: str) -> None:
    subject = subjects.from_function(f"{own}:with_nodes")
    assert subject.keys() == [3, 1]
    assert subject.class_names == ("even", "odd")
    assert subjects.from_function(f"{own}:masked").keys() == [6, 7]
    graphs = subjects.from_function(f"{own}:many")
    assert (graphs.task, graphs.keys()) == ("graph", [0, 1])


def test_work_has_the_labels_of_its_keys(own: str) -> None:
    work = subjects.from_function(f"{own}:load").work([2, 5], method="cf2-relaxed", seed=1)
    assert work.labels == {2: 0, 5: 1}
    assert work.task == "node"


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (":load", "MODULE:FUNCTION"),
        ("{own}", "MODULE:FUNCTION"),
        ("not_a_module_here:load", "no such module"),
        ("{own}_bad:load", "imports 'not_a_module_of_anyone'"),
        ("{own}_typo:load", "SyntaxError"),
        ("{own}:lod", "a function 'lod'"),
        ("{own}:number", "got int"),
        ("{own}:unknown", "'node'"),
        ("{own}:too_few", "got Own"),
        ("{own}:no_model", "torch model first, but got str"),
        ("{own}:no_graphs", "empty list"),
        ("{own}:broken", "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(own: str, function: str, says: str) -> None:
    with pytest.raises(CF2Error) as error:
        subjects.from_function(function.format(own=own))
    assert says in str(error.value)


def test_a_function_that_returns_another_model_each_time_is_noticed(own: str) -> None:
    subject = subjects.from_function(f"{own}:random_weights")
    with pytest.raises(CF2Error, match="same weights"):
        subjects.restore(subject.description)


@pytest.mark.data
def test_molecules_have_elements_and_truth() -> None:
    subject = subjects.from_dataset("mutag0") if "mutag0" in training.shipped_names() else None
    if subject is None:
        pytest.skip("no shipped model for mutag0")
    key = subject.keys()[0]
    context = subject.context([key])
    assert len(context["graphs"][str(key)]["labels"]) == subject.graphs[key].num_nodes
    assert set(context["graphs"][str(key)]["labels"]) <= set(context["atoms"])
    assert context["truth"][str(key)]
