"""A new method is one file and one line: everything else knows it by what it says about itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands_here import cf2 as command
from torch_geometric.explain import Explainer
from torch_geometric.nn import GCN

import cf2
from cf2.cli import demo
from cf2.methods import registry
from cf2.pyg import MethodExplainer
from cf2.runs.source import ModelAndData
from cf2.runs.store import Store
from reproduction.published import COLUMNS

SUMMARY = "gradients by another name"


@pytest.fixture
def another() -> Iterator[str]:
    """A method that is registered by one line."""
    method = replace(registry.get("gradient"), name="another", title="another", summary=SUMMARY, units=("edges",))
    yield cf2.register(method).name
    del registry._METHODS["another"]


def test_it_is_listed(another: str) -> None:
    (row,) = [row for row in command("methods", "--json").json if row["name"] == another]
    assert row["summary"] == SUMMARY
    assert "another" in command("methods").stdout


def test_it_explains_from_the_command_line(another: str, tmp_path: Path) -> None:
    words = ["explain", "tree-cycles", "--nodes", "511-513", "--method", another, "--set", "k=2", "--json"]
    (row,) = command(*words, "--out", tmp_path / "run").json["rows"]
    assert (row["method"], row["n"], row["size"]) == ("another", 3, 2.0)
    assert command("evaluate", tmp_path / "run", "--json").json["method"] == "another"
    assert command("report", tmp_path / "run", "-o", tmp_path / "r.html").returncode == 0
    assert [e.method for e in Store.open(tmp_path / "run").explanations()] == ["another"] * 3


def test_it_is_a_row_of_the_papers_tables(another: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelAndData, "keys", lambda self, spec=None: [511, 512])
    words = ["reproduce", "--table", "causal", "--table", "truth", "--datasets", "tree-cycles", "--json"]
    words += ["--engine", "local"]  # what is patched above is not patched in a worker
    shown = command(*words, "--methods", f"{another},gradient", "--out", tmp_path / "out").json
    rows = {(row["table"], row["method"]): row for row in shown["rows"]}
    assert rows["causal", another]["size"] == 6.0  # it takes the paper's k
    assert rows["causal", another]["published"] == {}
    assert "f1" in rows["truth", another]
    assert [column.name for column in COLUMNS if not column.allows(another)] == ["citeseer-features"]
    assert "another" in json.dumps(shown)


def test_it_is_in_the_demo(another: str) -> None:
    assert demo.methods()[-1] == another


def test_it_is_an_algorithm_of_torch_geometric(another: str) -> None:
    explainer = Explainer(
        GCN(6, 4, 2, 2),
        algorithm=MethodExplainer(another, k=1),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    ends = torch.tensor([[0, 0, 0, 1, 4], [1, 2, 3, 4, 5]])  # a star around 0, and a tail 1, 4, 5
    mask = explainer(torch.eye(6), torch.cat([ends, ends.flip(0)], 1), index=0).edge_mask
    assert int((mask > 0).sum()) == 2  # one edge, both ways
