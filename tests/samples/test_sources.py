"""Where a model and its data come from: one of our data sets, the user's own function, or a description of either."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cf2.errors import CF2Error
from cf2.samples import registry as datasets
from cf2.samples import sources, training

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

def ring(n=8, **more):
    at = torch.arange(n)
    ahead = torch.stack([at, (at + 1) % n])
    return Data(x=torch.eye(3)[at % 3], edge_index=torch.cat([ahead, ahead.flip(0)], 1), y=at % 2, **more)

def load(**more):
    torch.manual_seed(0)
    return Own(), ring(**more)

def random_weights():
    torch.seed()
    return Own(), ring()

def with_nodes(name="nodes"):
    model, data = load()
    return {"model": model, "data": data, name: [3, 1], "class_names": ["even", "odd"]}

unknown = lambda: with_nodes("node")
many = lambda: (Own(), [ring(5), ring(6)])
masked = lambda: load(test_mask=torch.arange(8) > 5)
true_ones = lambda: (Own(), [ring(n, truth=torch.arange(2 * n) < 2) for n in (5, 6)])
too_few = lambda: Own()
no_model = lambda: ("model", ring())
no_graphs = lambda: (Own(), [])
broken = lambda: 1 / 0
weighted = lambda: load(edge_weight=torch.full((16,), 0.5))
heavier = lambda: load(edge_weight=torch.full((16,), 2.0))
lazy = lambda: (GCN(-1, 4, 2, 2), ring())
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


# -- our data sets --------------------------------------------------------------------------------------------


def test_a_data_set_comes_with_its_model_and_the_papers_instances() -> None:
    source = sources.from_dataset("ba-shapes")
    dataset = datasets.load("ba-shapes")
    assert (source.level, source.name) == ("node", "ba-shapes")
    assert source.class_names == tuple(dataset.class_names)
    keys = source.keys()
    predicted = training.predict(source.model, dataset)
    assert keys
    assert all(int(dataset.labels[k]) in dataset.positive and int(predicted[k]) in dataset.positive for k in keys)
    _, about = training.shipped("ba-shapes")
    train_ids, test_ids = (set(ids.tolist()) for ids in datasets.split(dataset, about.split["seed"]))
    assert set(keys) <= test_ids
    assert source.keys_to_train_on is not None
    learned = source.keys_to_train_on()
    assert learned == sorted(learned)
    assert set(learned) <= train_ids


def test_truth_and_context_agree_with_the_data_set() -> None:
    source = sources.from_dataset("ba-shapes")
    key = source.keys()[0]
    mask = source.truth(key)
    assert mask is not None
    assert mask.shape == (source.graphs[0].edge_index.size(1),)
    context = json.loads(json.dumps(source.context([key])))
    assert len({tuple(sorted(pair)) for pair in context["truth"][str(key)]}) == 6
    assert context["dataset"] == "ba-shapes"
    assert context["class_names"] == list(source.class_names)
    base = int((source.graphs[0].motif < 0).nonzero()[0])
    assert source.truth(base) is None
    assert "truth" not in source.context([base])


def test_a_typed_data_set_says_what_is_explained_and_why() -> None:
    source = sources.from_dataset("typed-motifs")
    assert (source.level, source.node_type, source.edge_type, source.output) == ("node", "author", None, "auto")
    dataset = datasets.load("typed-motifs")
    keys = source.keys()
    assert keys
    assert all(int(dataset.labels[key]) == 1 for key in keys)
    (truth,) = source.truths(keys[0])
    assert sum(int(mask.sum()) for mask in truth.values()) == 6
    pairs = source.context(keys[:1])["truth"][str(keys[0])]
    for kind, mask in truth.items():
        assert pairs.get(",".join(kind), []) == source.graphs[0][kind].edge_index[:, mask].t().tolist()
    before = source.fingerprints()["data"]
    source.graphs[0]["paper", "cites", "paper"].edge_index[0, 0] += 1
    assert sources.from_dataset("typed-motifs").fingerprints()["data"] == before
    source._fingerprints.clear()
    assert source.fingerprints()["data"] != before


LIKES = ("user", "likes", "item")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "checkpoint", "edge_type"),
    [("cora-links", None, None), ("page-link", None, LIKES), ("page-link", "page-link-hgt", LIKES)],
)
def test_pairs_come_half_and_half(name: str, checkpoint: str | None, edge_type: Any) -> None:
    source = sources.from_dataset(name, checkpoint=checkpoint)
    assert (source.level, source.output, source.edge_type) == ("pair", "logits", edge_type)
    keys, dataset = source.keys(), datasets.load(name)
    labels = {tuple(pair): label for pair, label in zip(dataset.pairs.tolist(), dataset.labels.tolist())}
    assert len(keys) == 200
    assert sum(labels[key] for key in keys) == 100
    assert len([key for key in keys if source.truths(key)]) == (100 if edge_type else 0)
    assert source.keys_to_train_on is not None
    assert not set(source.keys_to_train_on()) & set(keys)
    assert sources.restore(json.loads(json.dumps(source.description))).description == source.description


@pytest.mark.data
def test_numbers_come_with_their_output_and_molecules_with_elements() -> None:
    source = sources.from_dataset("crippen")
    assert (source.level, source.output, source.class_names, len(source.keys())) == ("graph", "regression", (), 200)
    assert "R²" in source.model_line
    source = sources.from_dataset("mutag0")
    key = source.keys()[0]
    context = source.context([key])
    assert len(context["graphs"][str(key)]["labels"]) == source.graphs[key].num_nodes
    assert set(context["graphs"][str(key)]["labels"]) <= set(context["atoms"])
    assert context["truth"][str(key)]


def test_a_description_restores_the_model_and_the_data() -> None:
    source = sources.from_dataset("ba-shapes")
    again = sources.restore(json.loads(json.dumps(source.description)))
    assert again.keys() == source.keys()
    assert torch.equal(again.graphs[0].edge_index, source.graphs[0].edge_index)
    for one, other in zip(source.model.state_dict().values(), again.model.state_dict().values()):
        assert torch.equal(one, other)
    with pytest.raises(CF2Error, match="a data set, of a function or of a Chemprop model"):
        sources.restore({"kind": "dream"})


def test_a_checkpoint_by_path_is_that_model_and_of_that_data_set(tmp_path: Path) -> None:
    model, about = training.shipped("ba-shapes")
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    path = training.save(tmp_path / "mine", model, about)
    source = sources.from_dataset("ba-shapes", checkpoint=path)
    assert torch.equal(next(source.model.parameters()), next(model.parameters()))
    training.save(path, training.shipped("ba-shapes")[0], about)
    with pytest.raises(CF2Error, match="same weights of the model"):
        sources.restore(source.description)
    training.save(path, *training.shipped("tree-cycles"))
    with pytest.raises(CF2Error, match=r"trained on this 'ba-shapes'.*cf2 train ba-shapes"):
        sources.from_dataset("ba-shapes", checkpoint=path)


def test_a_description_knows_where_the_raw_data_was(cache: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("CF2_DATA", raising=False)
    bought = {"user|buys|item": [[0, 1, 1, 2, 2, 3], [0, 0, 1, 1, 2, 3]], "user|likes|item": [[0, 1, 2, 3]] * 2}
    content = {"nodes": {"user": 4, "item": 4}, "edges": bought, "truth": []}
    root = tmp_path / "root"
    (root / "PaGELink").mkdir(parents=True)
    (root / "PaGELink" / "synthetic.json").write_text(json.dumps(content))
    data = datasets.load("page-link", root=root)
    checkpoint = training.save(tmp_path / "model", *training.train(data, epochs=1))
    source = sources.from_dataset("page-link", checkpoint=checkpoint, root=root)
    assert source.description["root"] == str(root)
    assert sources.restore(source.description).keys() == source.keys()
    with pytest.raises(CF2Error, match="it is missing"):
        sources.restore(source.description | {"root": None})
    moved = root.rename(tmp_path / "moved")
    assert sources.restore(source.description, root=moved).keys() == source.keys()
    with pytest.raises(CF2Error, match="it is missing"):
        sources.restore(source.description)


# -- the user's own function ----------------------------------------------------------------------------------


def test_a_function_of_the_user(own: str) -> None:
    before = list(sys.path)
    source = sources.from_function(f"{own}:load")
    assert sys.path == before
    assert (source.level, len(source)) == ("node", 8)
    assert source.keys() == list(range(8))
    assert isinstance(source.model, nn.Module)
    assert sources.restore(source.description, trust=True).keys() == source.keys()
    assert source.context([0])["dataset"] == f"{own}:load"


def test_a_function_may_say_which_nodes_name_the_classes_and_give_true_edges(own: str) -> None:
    source = sources.from_function(f"{own}:with_nodes")
    assert source.keys() == [3, 1]
    assert source.class_names == ("even", "odd")
    assert sources.from_function(f"{own}:masked").keys() == [6, 7]
    graphs = sources.from_function(f"{own}:many")
    assert (graphs.level, graphs.keys(), graphs.truth(0)) == ("graph", [0, 1], None)
    assert sources.from_function(f"{own}:true_ones").true_edges([1])[1].tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (":load", "MODULE:FUNCTION"),
        ("{own}", "MODULE:FUNCTION"),
        ("not_a_module_here:load", "no such module"),
        ("{own}_bad:load", "imports 'not_a_module_of_anyone'"),
        ("{own}_typo:load", "SyntaxError"),
        ("{own}:lod", "but got 'lod'. Did you mean 'load'?"),
        ("{own}:number", "of type int"),
        ("{own}:unknown", "'node'"),
        ("{own}:too_few", "got Own"),
        ("{own}:no_model", "torch model first, but got str"),
        ("{own}:no_graphs", "empty list"),
        ("{own}:broken", "ZeroDivisionError: division by zero ("),
        ("{own}:lazy", "lazy layers that have not seen an input yet"),
        ("{own}.py:load", "Name the module, not its file"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(own: str, function: str, says: str) -> None:
    with pytest.raises(CF2Error) as error:
        sources.from_function(function.format(own=own))
    assert says in str(error.value)


def test_other_edge_weights_are_other_data_and_other_weights_are_noticed(own: str) -> None:
    first, same, other = (sources.from_function(f"{own}:{name}") for name in ("weighted", "weighted", "heavier"))
    assert first.description["data"] == same.description["data"] != other.description["data"]
    with pytest.raises(CF2Error, match="other data"):
        sources.restore(first.description | {"function": f"{own}:heavier"}, trust=True)
    drawn = sources.from_function(f"{own}:random_weights")
    with pytest.raises(CF2Error, match="same weights"):
        sources.restore(drawn.description, trust=True)
