"""Long work says so: an interrupt returns what is finished, a sentence after some seconds, and a limit that is said."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import cf2
from cf2.runs import answers, progress, session


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


def test_after_some_seconds_a_sentence_says_how_large_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow(SAGEConv):
        def forward(self, *given: Any, **named: Any) -> Any:
            time.sleep(0.1)
            return super().forward(*given, **named)

    monkeypatch.setattr(progress, "SPEAKS_AFTER", 0.2)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    cf2.explain(Slow(3, 2), ring(), [0], units=("edges", "features"), progress=lambda more: None)
    said = capsys.readouterr().err
    assert "Still searching among up to 11 units" in said
    cf2.explain(Slow(3, 2), ring(), [0], progress=False)
    assert "Still" not in capsys.readouterr().err


def test_very_many_units_are_reduced_and_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, data = SAGEConv(3, 2), ring()
    options: dict[str, Any] = {"units": ("edges", "features")}
    before = cf2.explain(model, data, range(4), **options)
    assert not any("Only the" in e.note for e in before)
    for module in (session, answers):
        monkeypatch.setattr(module, "MAX_UNREDUCED", 10)
        monkeypatch.setattr(module, "AUTO_REDUCED", 5)
    after = cf2.explain(model, data, range(4), **options)
    assert all("Only the 5 of 11 units" in e.note and "max_units=" in e.note for e in after)
    assert not any(e.optimal for e in after)
    asked = cf2.explain(model, data, range(4), **options, max_units=11)
    assert [e.selected.tolist() for e in asked] == [e.selected.tolist() for e in before]
