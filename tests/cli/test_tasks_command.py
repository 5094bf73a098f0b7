"""Pairs, numbers, types and a `call` on the command line: a run, its check, its report, its what-if page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands_here import cf2

from cf2.errors import CF2Error
from cf2.runs.store import Store
from cf2.samples.sources import from_dataset, restore
from cf2.web.whatif import WhatIf, checked_edits

CODE = """
import sys
sys.path.insert(0, {tests!r})
import torch
import typed_toys
from test_tasks import Net, graph

def links():
    return {{"model": Net(1, 1, 3.0), "data": graph(1), "pairs": [(0, 3), (4, 7)],
             "call": decode}}

def decode(model, batch):
    return model(batch.x, batch.edge_index, batch.edge_label_index)

def numbers():
    return Net(1, 1, 3.0), graph(1)

def typed():
    return typed_toys.model("graph", 3, 1), typed_toys.graph(1)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tests = str(Path(__file__).parent.parent)
    (tmp_path / "tasks_of_mine.py").write_text(CODE.format(tests=tests), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TASKS: dict[str, tuple[str, list[str], list[Any]]] = {
    "links": ("links", ["--output", "logits"], [(0, 3), (4, 7)]),
    "given links": ("links", ["--output", "logits", "--pairs", "1:2,3:5", "--no-leave-out-pair"], [(1, 2), (3, 5)]),
    "numbers": ("numbers", ["--output", "regression", "--nodes", "0-4"], [0, 1, 2, 3, 4]),
    "typed": ("typed", ["--node-type", "user", "--nodes", "0,1,3"], [0, 1, 3]),
    "typed links": ("typed", ["--edge-type", "user,likes,item", "--pairs", "0:0,4:2"], [(0, 0), (4, 2)]),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_run_of_every_task_is_whole_and_true(here: Path, task: str) -> None:
    function, words, keys = TASKS[task]
    asked = ["explain", "--data", f"tasks_of_mine:{function}", *words, "--set", "effort=quick", "--out", "run"]
    done = cf2(*asked, "--json")
    assert done.returncode == 0, done.stderr
    run = Store.open(here / "run")
    found = run.explanations()
    assert [e.key for e in found] == keys
    assert cf2(*asked, "--resume").returncode == 0
    checked = cf2("check", "run", "--trust", "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.json["verdicts"] == len(keys)
    assert cf2("report", "run", "--out", "report.html").returncode == 0
    assert (here / "report.html").is_file()
    page, seen = WhatIf(restore(run.manifest["source"], trust=True), {"cf2": found}), set()
    for e in found:
        answer = page.ask(page.methods["cf2"][e.key], e.selected)
        assert answer.removed_verdict == (e.sufficient, e.necessary)
        assert answer.changed == e.necessary
        assert checked_edits([], page.graph(e.key), e.directed) == []
        if function == "typed":
            with pytest.raises(CF2Error, match=r"by hand.*smallest edit"):
                checked_edits([["add", 0, 1]], page.graph(e.key), e.directed)
            continue
        node = e.key[0] if isinstance(e.key, tuple) else e.key
        edits = checked_edits([["change", node, column, 5.0] for column in range(3)], page.graph(e.key), e.directed)
        said, changed = page.ask_edited(e, np.zeros(e.num_units, dtype=bool), edits)
        if function == "numbers":
            assert changed == (abs(float(said[0]) - e.value) > e.tolerance)
            seen.add(changed)
        else:
            assert changed == (int(said.argmax()) != e.prediction)
    assert function != "numbers" or True in seen


@pytest.mark.data
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cora-links", "--nodes", "0-5"], "--pairs 3:17,4:9 instead of --nodes"),
        (["mutag0", "--pairs", "0:1"], "--nodes 3,17,40-44 instead of --pairs"),
    ],
)
def test_a_data_set_asked_by_the_wrong_option_names_the_right_one(here: Path, words: list[str], said: str) -> None:
    done = cf2("explain", *words, "--out", "run")
    assert done.returncode == 2
    assert said in " ".join(done.said.replace("│", " ").split())
    assert not (here / "run").exists()


NAMED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "cora-links": (["--pairs", "436:668,2:3"], {"output": "logits", "edge_type": None, "node_type": None}),
    "page-link": (["--pairs", "1:88,41:91"], {"output": "logits", "edge_type": ("user", "likes", "item")}),
    "typed-motifs": (["--nodes", "297,283"], {"output": "auto", "node_type": "author", "edge_type": None}),
    "crippen": (["--nodes", "3334-3337"], {"output": "regression", "node_type": None}),
}


@pytest.mark.data
@pytest.mark.parametrize("name", NAMED)
def test_a_task_of_ours_is_explained_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "crippen":
        pytest.importorskip("rdkit")
    words, settled = NAMED[name]
    asked = ["explain", name, *words, "--set", "effort=quick", "--out", "run"]
    done = cf2(*asked, "--json")
    assert done.returncode == 0, done.said
    run = Store.open(tmp_path / "run")
    assert {option: getattr(run.jobs()[0], option) for option in settled} == settled
    found = run.explanations()
    assert all(e.status == "found" for e in found if e.prediction == 1 or name == "crippen")
    assert cf2(*asked, "--resume").returncode == 0
    assert cf2("check", "run", "--json").json["verdicts"] == len(found)
    if name in ("page-link", "typed-motifs"):
        assert done.json["rows"][0]["truths"] == len(found)
        true = cf2("explain", name, *words, "--method", "truth", "--out", "truth", "--json").json["rows"][0]
        assert (true["pr"], true["re"]) == (1.0, 1.0)
    if name in ("cora-links", "page-link"):
        known = from_dataset(name).labels
        assert [e.label for e in found] == [known.get(e.key) for e in found]
        assert any(e.label is not None for e in found)
    assert cf2("report", "run", "--out", "report.html").returncode == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"Explanations of {name}" in page
    assert ("known truth" in page) == (name in ("page-link", "typed-motifs"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pairs", "3-17"], "Expected pairs such as 3:17,4:9"),
        (["--pairs", "0:1", "--nodes", "3"], "either --nodes or --pairs"),
        (["--edge-type", "likes", "--pairs", "0:1"], "source, relation, destination"),
    ],
)
def test_what_is_wrong_is_said(here: Path, words: list[str], said: str) -> None:
    done = cf2("explain", "--data", "tasks_of_mine:links", "--output", "logits", *words, "--out", "run")
    assert done.returncode != 0
    assert said in done.said
