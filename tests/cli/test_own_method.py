"""A new method is one file and one line: everything else knows it by what it says about itself."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from commands_here import cf2 as command
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.nn import GCN

import cf2
from cf2.cli import demo
from cf2.errors import CF2Error
from cf2.methods import registry
from cf2.pyg import MethodExplainer
from cf2.runs.source import ModelAndData
from cf2.runs.store import Store
from reproduction.published import COLUMNS

FILE = '''
"""Busy edges first: the score of an edge is the product of the degrees of its ends."""

from dataclasses import dataclass

import torch

from cf2.methods.contract import Method, Ranking, check_choice, choose
from cf2.methods.trained import unit_mean
from cf2.sets.search import Choice


@dataclass(frozen=True)
class Settings:
    """`k` units, or those above `threshold` (0.5 if neither is given)."""

    k: int | None = None
    threshold: float | None = None

    def __post_init__(self):
        check_choice(self.k, self.threshold)


def rank(problem, settings):
    """Score all units of all instances at once."""
    pack = problem.pack
    tail, head = pack.edge_index
    degree = torch.bincount(head, minlength=pack.x.size(0)).float()
    scores = unit_mean(degree[tail] * degree[head], pack)
    selected = choose(scores, pack, k=settings.k, threshold=settings.threshold)
    return Ranking(scores, Choice(selected, torch.zeros(problem.num_instances, dtype=torch.long)))


METHOD = Method(
    name="degree",
    title="degree",
    summary="edges between busy nodes first",
    settings=Settings,
    rank=rank,
    units=("edges",),
    paper=("k",),
)
'''


@pytest.fixture
def degree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "degree_method.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    cf2.register(importlib.import_module("degree_method").METHOD)  # the line
    yield "degree"
    del registry._METHODS["degree"]


def star() -> Data:
    ends = torch.tensor([[0, 0, 0, 1, 4], [1, 2, 3, 4, 5]])  # a star around 0, and a tail 1, 4, 5
    return Data(x=torch.eye(6), edge_index=torch.cat([ends, ends.flip(0)], 1))


def test_it_is_listed(degree: str) -> None:
    (row,) = [row for row in command("methods", "--json").json if row["name"] == degree]
    assert row["summary"] == "edges between busy nodes first"
    assert "degree" in command("methods").stdout


def test_it_explains_from_python_and_the_busiest_edge_comes_first(degree: str) -> None:
    found = cf2.explain(GCN(6, 4, 2, 2), star(), nodes=[0], method=degree, k=1)
    assert found[0].chosen("edges").tolist() == [[0, 1]]
    searched = cf2.explain(GCN(6, 4, 2, 2), star(), nodes=[0], method=degree, search=True)
    assert searched[0].status in ("found", "impossible", "not found")
    with pytest.raises(CF2Error, match="Did you mean 'threshold'"):
        cf2.explain(GCN(6, 4, 2, 2), star(), nodes=[0], method=degree, treshold=1)
    with pytest.raises(CF2Error, match="method 'degree' scores, edges"):
        cf2.explain(GCN(6, 4, 2, 2), star(), nodes=[0], method=degree, units="features")


def test_it_explains_from_the_command_line(degree: str, tmp_path: Path) -> None:
    words = ["explain", "tree-cycles", "--nodes", "511-513", "--method", degree, "--set", "k=2", "--json"]
    (row,) = command(*words, "--out", tmp_path / "run").json["rows"]
    assert (row["method"], row["n"], row["size"]) == ("degree", 3, 2.0)
    assert command("evaluate", tmp_path / "run", "--json").json["method"] == "degree"
    assert command("report", tmp_path / "run", "-o", tmp_path / "r.html").returncode == 0
    assert [e.method for e in Store.open(tmp_path / "run").explanations()] == ["degree"] * 3


def test_it_is_a_row_of_the_papers_tables(degree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelAndData, "keys", lambda self, spec=None: [511, 512])
    words = ["reproduce", "--table", "causal", "--table", "truth", "--datasets", "tree-cycles", "--json"]
    words += ["--engine", "local"]  # what is patched above is not patched in a worker
    shown = command(*words, "--methods", f"{degree},gradient", "--out", tmp_path / "out").json
    rows = {(row["table"], row["method"]): row for row in shown["rows"]}
    assert rows["causal", degree]["size"] == 6.0  # it takes the paper's k
    assert rows["causal", degree]["published"] == {}
    assert "f1" in rows["truth", degree]
    assert [column.name for column in COLUMNS if not column.allows(degree)] == ["citeseer-features"]
    assert "degree" in json.dumps(shown)


def test_it_is_in_the_demo(degree: str) -> None:
    assert demo.methods()[-1] == degree


def test_it_is_an_algorithm_of_torch_geometric(degree: str) -> None:
    explainer = Explainer(
        GCN(6, 4, 2, 2),
        algorithm=MethodExplainer(degree, k=1),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    data = star()
    mask = explainer(data.x, data.edge_index, index=0).edge_mask
    assert data.edge_index[:, mask > 0].t().tolist() == [[0, 1], [1, 0]]


def test_a_name_is_given_once(degree: str) -> None:
    again = importlib.import_module("degree_method").METHOD
    assert cf2.register(again) is again  # the same one may come twice
    with pytest.raises(CF2Error, match="'cf2', which is taken"):
        cf2.register(registry.get("gradient").__class__(**{**vars(again), "name": "cf2"}))
    with pytest.raises(CF2Error, match="Expected a cf2"):
        cf2.register("degree")  # type: ignore[arg-type]
