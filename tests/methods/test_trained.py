"""Methods that are trained once: fit, save, load, explain unseen instances in one pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2.methods.trained import Trained
from cf2.samples.models import build
from methods_toys import plant, toy
from toys import model_state, same_state

METHODS = ("gem", "pgexplainer", "rcexplainer", "tage", "gisst")
PASSES = {"tage": 4}  # a backward pass for the condition; one pass for the others


@pytest.fixture(scope="module", params=METHODS)
def trained(request: pytest.FixtureRequest) -> Trained:
    subject = toy("cycles", 0)
    return cf2.fit(subject.model, subject.data, subject.learn, method=request.param, k=4, epochs=10)


def test_a_saved_explainer_explains_the_same(trained: Trained, tmp_path: Path) -> None:
    subject = toy("cycles", 0)
    path = trained.save(tmp_path / "explainer.safetensors")
    loaded = cf2.load_trained(path)
    assert loaded.method == trained.method
    assert loaded.settings == trained.settings
    assert loaded.facts == trained.facts
    one, two = (
        cf2.explain(subject.model, subject.data, subject.test, method=trained.method, trained=each)
        for each in (trained, loaded)
    )
    for a, b in zip(one, two):
        assert np.array_equal(a.scores, b.scores)
        assert a.size == min(4, a.num_units)  # the size of the training holds
        assert a.evaluations == PASSES.get(trained.method, 1) + 2  # and the two that every verdict takes


def test_a_size_or_threshold_asked_for_replaces_that_of_the_training(trained: Trained) -> None:
    subject = toy("cycles", 0)
    (two,) = cf2.explain(subject.model, subject.data, subject.test[:1], method=trained.method, trained=trained, k=2)
    assert two.size == 2
    (above,) = cf2.explain(
        subject.model, subject.data, subject.test[:1], method=trained.method, trained=trained, threshold=0.3
    )
    assert (above.selected == (above.scores > 0.3)).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_seed_decides_the_training_and_the_model_is_left_alone(method: str) -> None:
    subject = toy("cycles", 0)
    subject.model.train()
    before, state = model_state(subject.model), torch.get_rng_state()
    fits = [
        cf2.fit(subject.model, subject.data, subject.learn[:6], method=method, k=4, epochs=3, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert torch.equal(state, torch.get_rng_state())
    assert same_state(before, model_state(subject.model))
    same, other = (
        all(torch.equal(fits[0].tensors[name], fit.tensors[name]) for name in fits[0].tensors) for fit in fits[1:]
    )
    assert same
    assert not other
    subject.model.eval()


@pytest.mark.parametrize("method", METHODS)
def test_graphs_are_explained_too(method: str) -> None:
    graphs = []
    for number in range(12):
        data, _ = plant("cycles", number)
        part = torch.arange(data.num_nodes) < 40 + number
        inside = part[data.edge_index].all(0)
        graphs.append(Data(x=data.x[part], edge_index=data.edge_index[:, inside]))
    torch.manual_seed(0)
    model = build("gin", task="graph", num_features=4, num_classes=2, hidden=8)
    fit = cf2.fit(model, graphs[:8], method=method, k=5, epochs=3)
    found = cf2.explain(model, graphs[8:], method=method, trained=fit)
    assert [e.size for e in found] == [5] * 4
    assert fit.facts["instances"] == 8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_models_of_every_precision_are_explained(method: str, dtype: torch.dtype) -> None:
    data, _ = plant("cycles", 0)
    torch.manual_seed(0)
    model = build("gcn", task="node", num_features=4, num_classes=2, hidden=8).to(dtype)
    data.x = data.x.to(dtype)
    fit = cf2.fit(model, data, range(8), method=method, k=3, epochs=2)
    assert {tensor.dtype for tensor in fit.tensors.values()} == {torch.float32}
    assert [e.size for e in cf2.explain(model, data, [9, 10], method=method, trained=fit)] == [3, 3]
    assert next(model.parameters()).dtype == dtype


def test_mistakes_are_explained(trained: Trained, tmp_path: Path) -> None:
    subject = toy("cycles", 0)
    model, data, nodes, method = subject.model, subject.data, subject.test[:2], trained.method
    other = next(name for name in METHODS if name != method)
    with pytest.raises(cf2.CF2Error, match=r"cf2\.fit"):
        cf2.explain(model, data, nodes, method=method)
    with pytest.raises(cf2.CF2Error, match=f"trained for method '{other}'"):
        cf2.explain(model, data, nodes, method=other, trained=trained)
    with pytest.raises(cf2.CF2Error, match="needs no training"):
        cf2.fit(model, data, nodes, method="gnnexplainer")
    with pytest.raises(cf2.CF2Error, match="node_features"):
        cf2.explain(model, data, nodes, method=method, trained=trained, units="node_features")
    wider = build("gcn", task="node", num_features=4, num_classes=2, hidden=9)
    with pytest.raises(cf2.CF2Error, match="width"):
        cf2.explain(wider, data, nodes, method=method, trained=trained)
    with pytest.raises(cf2.CF2Error, match="not there"):
        cf2.load_trained(tmp_path / "nothing.safetensors")
    with pytest.raises(cf2.CF2Error, match="safetensors"):
        trained.save(tmp_path / "explainer.pt")
    (tmp_path / "junk.safetensors").write_bytes(b"not a tensor in sight")
    with pytest.raises(cf2.CF2Error, match="hold a trained explainer"):
        cf2.load_trained(tmp_path / "junk.safetensors")
