"""Long work: an interrupt or a bound leaves the best so far, and somebody who waits is told how far it is."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv, global_add_pool

import cf2
from cf2.methods import contract
from cf2.runs import progress, session


def ring(count: int = 12) -> Data:
    torch.manual_seed(0)
    tail = torch.arange(count)
    edges = torch.stack([tail, (tail + 1) % count])
    return Data(x=torch.randn(count, 3), edge_index=torch.cat([edges, edges.flip(0)], 1))


def test_ctrl_c_returns_what_is_finished(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    model, data = SAGEConv(3, 2), ring()
    monkeypatch.setattr(session, "KEYS_AT_ONCE", 2)
    whole = cf2.explain(model, data, range(6))
    done = 0

    def stop(more: int) -> None:
        nonlocal done
        done += more
        if done >= 4:
            raise KeyboardInterrupt

    found = cf2.explain(model, data, range(6), progress=stop)
    assert [e.key for e in found] == [0, 1, 2, 3]
    assert [e.selected.tolist() for e in found] == [e.selected.tolist() for e in whole[:4]]
    assert found.context["partial"] == "Interrupted: 4 of 6 are explained."
    assert "4 of 6" in capsys.readouterr().err
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


def test_ctrl_c_before_anything_is_finished_is_an_interrupt() -> None:
    class Interrupted(torch.nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cf2.explain(Interrupted(), ring(), [0])


class Slow(SAGEConv):
    """A layer that takes its time."""

    def forward(self, *given: Any, **named: Any) -> Any:
        time.sleep(0.03)
        return super().forward(*given, **named)


def test_after_some_seconds_a_sentence_says_how_large_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SPEAKS_AFTER", 0.2)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    cf2.explain(Slow(3, 2), ring(), [0], units=("edges", "features"), progress=lambda more: None)
    said = capsys.readouterr().err
    assert "Still searching among up to 11 units" in said
    cf2.explain(Slow(3, 2), ring(), [0], progress=False)
    assert "Still" not in capsys.readouterr().err


def test_a_line_in_a_notebook_says_how_far_the_present_search_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"in_notebook": lambda: True, "LATER": 0.0, "EVERY": 0.01}.items():
        monkeypatch.setattr(progress, name, value)
    cf2.explain(Slow(3, 2), ring(), [0])
    lines = capsys.readouterr().err.split("\r")
    assert any("explained 0 of 1 Round" in line for line in lines)
    assert "explained 1 in" in lines[-1]


# -- the best so far ------------------------------------------------------------------------------------------


class Enough(torch.nn.Module):
    """Whether messages of two hops amount to enough; it is interrupted at one of its calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = (
            SAGEConv(*size, aggr="add", root_weight=False, bias=False) for size in ((3, 8), (8, 1))
        )
        self.stop_at, self.calls = 10**9, 0

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        h = self.second(self.first(x, edge_index).relu(), edge_index)
        h = global_add_pool(h, batch)
        return torch.cat([0 * h + 1, h + 1 - ENOUGH], 1)


ENOUGH = 1.5


def dense(seed: int, count: int = 14) -> Data:
    torch.manual_seed(seed)
    edges = torch.randint(0, count, (2, 4 * count))
    edges = torch.unique(torch.cat([edges, edges.flip(0)], 1)[:, edges[0].repeat(2) != edges[1].repeat(2)], dim=1)
    return Data(x=torch.randn(count, 3), edge_index=edges)


@pytest.mark.parametrize("options", [{}, {"surely": 0.01}, {"alternatives": 3}, {"effort": "thorough"}])
def test_an_interrupt_at_any_call_leaves_the_best_so_far_or_says_that_there_is_none(options: dict[str, Any]) -> None:
    graphs = [dense(seed) for seed in range(3)]
    model = Enough()
    whole = cf2.explain(model, graphs, progress=False, **options)
    assert "found" in [e.status for e in whole]
    total, outcomes = model.calls, set()
    for stop_at in range(2, total, max(1, total // 25)):
        model.calls, model.stop_at = 0, stop_at
        before = {name: value.clone() for name, value in model.state_dict().items()}
        try:
            found = cf2.explain(model, graphs, progress=False, **options)
        except KeyboardInterrupt:
            outcomes.add("none")
        else:
            said = [e for e in found if "nterrupted" in e.note]
            outcomes.update(e.status for e in said)
            assert "partial" in found.context
            assert all(e.sufficient and e.necessary and not e.optimal and not e.minimal for e in said)
            model.stop_at = 10**9
            assert not cf2.check(found, model, graphs).false
        assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {"none", "not found" if "surely" in options else "found"} <= outcomes


def test_the_search_of_a_very_large_instance_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs, model = [dense(seed) for seed in range(3)], Enough()
    before = cf2.explain(model, graphs)
    for name, value in {"LARGE": 20, "MAX_FLOATS_IN_ALL": 0, "MIN_RUNS": 60}.items():
        monkeypatch.setattr(contract, name, value)
    monkeypatch.setattr(session, "LARGE", 20)
    bounded = cf2.explain(model, graphs)
    assert sum(e.evaluations for e in bounded) < sum(e.evaluations for e in before)
    assert all("max_units=" in e.note and not e.minimal and not e.optimal for e in bounded)
    assert "found" in [e.status for e in bounded]
    assert not cf2.check(bounded, model, graphs).false
    explainer = cf2.Explainer(model, graphs)
    explainer.explain()  # measures the model
    alone = [explainer.explain([key])[0] for key in range(3)]
    assert [e.selected.tolist() for e in bounded] == [e.selected.tolist() for e in alone]
    asked = cf2.explain(model, graphs, max_units=100)
    assert [e.selected.tolist() for e in asked] == [e.selected.tolist() for e in before]


def test_an_interrupt_of_a_function_leaves_the_best_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    calls, stop_at = 0, 10**9
    weight = np.random.default_rng(0).normal(size=16)

    def scores(there: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == stop_at:
            raise KeyboardInterrupt
        return np.stack([0 * there[:, 0], there @ weight - 0.3 * weight.clip(0).sum()], 1)

    cf2.explain_sets(scores, 16, output="logits", progress=False)
    total, sizes = calls, set()
    for stop_at in range(4, total, max(1, total // 12)):
        calls = 0
        try:
            found = cf2.explain_sets(scores, 16, output="logits", progress=False)
        except KeyboardInterrupt:
            continue
        assert "Interrupted" in found.context["partial"]
        assert "Interrupted" in capsys.readouterr().err
        assert found[0].status == "found"
        assert not found[0].optimal
        sizes.add(found[0].size)
        stop_at = 10**9
        assert not cf2.check(found, scores, 16).false
    assert sizes
