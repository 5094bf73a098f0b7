"""`cf2 check` finds what is wrong with a run, and every command says how much of a run is finished."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands_here import cf2

from cf2.runs.store import Store

WORDS = ["explain", "tree-cycles", "--nodes", "511-514", "--method", "cf2", "--out"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check") / "run"
    assert cf2(*WORDS, path).returncode == 0
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def rewrite(run: Path, change: Any, count: int = 4) -> None:
    """Have the only shard hold other explanations, with all its digests right."""
    opened = Store.open(run)
    (job,) = opened.jobs()
    found = opened.explanations().items
    shutil.rmtree(run / "shards")
    (run / "shards").mkdir()
    opened.write_shard(0, opened.identity(job), [change(e) for e in found[:count]])


@pytest.fixture
def partial(run: Path) -> Path:
    """Three of four are finished; of another method, none."""
    rewrite(run, lambda e: e, 3)
    opened = Store.open(run)
    opened.add(replace(opened.jobs()[0], method="gradient", settings={}))
    return run


# -- how much is finished -------------------------------------------------------------------------------------


def test_every_command_says_how_much_is_finished(
    partial: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cf2.web.serve", lambda run, **_: None)
    page, says = tmp_path / "r.html", "3 of 4 by cf2, 0 of 4 by gradient"
    assert says in " ".join(cf2("evaluate", partial).stdout.split())
    rows = cf2("evaluate", partial, "--json").json["methods"]
    counts = [(row["method"], row["n"], row["finished"], row["asked"]) for row in rows]
    assert counts == [("cf2", 3, 3, 4), ("gradient", 0, 0, 4)]
    none = cf2("evaluate", partial, "--method", "gradient")
    assert none.returncode == 1
    assert "finished explanations by 'gradient'" in none.said
    assert says in cf2("serve", partial).said
    assert says in cf2("report", partial, "-o", page).said
    header = page.read_text().partition("</header>")[0]
    assert "3 of 4 by cf2" in header
    assert "0 of 4 by gradient" in header
    # nothing is said of a run that is finished
    assert "finished" not in cf2("evaluate", finished).stdout
    row = cf2("evaluate", finished, "--json").json
    assert (row["finished"], row["asked"]) == (4, 4)
    assert cf2("serve", finished).said == ""
    assert cf2("report", finished, "-o", page).stderr == ""
    assert "of 4 by" not in page.read_text()


# -- what is wrong --------------------------------------------------------------------------------------------


def test_a_good_run_has_nothing_wrong(finished: Path) -> None:
    done = cf2("check", finished)
    assert done.returncode == 0
    assert "cf2: 4 of 4 finished" in done.stdout
    assert "4 verdicts recomputed" in done.stdout
    assert "optimal: " in done.stdout
    assert "No problems found." in done.stdout
    assert "No problems found in the files." in cf2("check", finished, "--sample", 0).stdout
    shown = cf2("check", finished, "--json", "--sample", 2).json
    assert (shown["good"], shown["problems"], shown["verdicts"]) == (True, [], 2)
    assert shown["claims"]["found"] == {"checked": 2, "false": 0, "not_checkable": 0}
    assert shown["methods"] == [{"method": "cf2", "finished": 4, "asked": 4}]
    assert cf2("check", finished, "--json", "--sample", 0).json["verdicts"] == 0


def test_missing_keys_and_refused_shards_are_named(run: Path) -> None:
    (shard,) = (run / "shards").iterdir()
    copy = shard.with_name(shard.name.replace("000000", "000005"))
    shutil.copy(shard, copy)
    done = cf2("check", run)
    assert done.returncode == 1
    assert f"{copy.name} holds keys that {shard.name} holds as well" in done.stdout.replace("\n", "")
    rewrite(run, lambda e: e, 3)
    done = cf2("check", run, "--json")
    assert done.returncode == 1
    assert '"cf2: 1 of 4 keys are missing; --resume explains them."' in done.stdout
    assert '"good": false' in done.stdout


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: replace(e, sufficient=False, status="not found", minimal=None, optimal=None), "sufficient"),
        (lambda e: replace(e, selected=~e.selected), "outputs"),
        (lambda e: replace(e, units=replace(e.units, ids=e.units.ids[::-1].copy())), "other units"),
        (lambda e: replace(e, question="factual"), "another question"),
    ],
)
def test_a_verdict_that_the_model_does_not_give_is_found(run: Path, change: Any, says: str) -> None:
    rewrite(run, change)
    done = cf2("check", run, "--json")
    assert done.returncode == 1
    assert says in done.stdout
    assert "key 511" in done.stdout
    assert cf2("check", run, "--sample", 0).returncode == 0  # only the model can tell


def test_a_model_that_has_changed_since_is_found(tmp_path: Path) -> None:
    train = ["train", "tree-cycles", "--epochs", 2, "--set", "hidden=4", "--seed"]
    assert cf2(*train, 0, "--out", tmp_path / "model").returncode == 0
    words = ["explain", "tree-cycles", "--checkpoint", tmp_path / "model", "--nodes", "511", "--method", "gradient"]
    assert cf2(*words, "--out", tmp_path / "run").returncode == 0
    assert cf2("check", tmp_path / "run").returncode == 0
    for name in ("model.json", "model.safetensors"):
        (tmp_path / name).rename(tmp_path / f"moved-{name}")
    moved = cf2("check", tmp_path / "run")
    assert moved.returncode == 1
    assert "model.safetensors" in moved.stdout.replace("\n", "")
    assert cf2("check", tmp_path / "run", "--checkpoint", tmp_path / "moved-model").returncode == 0
    assert cf2(*train, 1, "--out", tmp_path / "model").returncode == 0
    other = cf2("check", tmp_path / "run")
    assert other.returncode == 1
    assert "other weights" in other.stdout


# -- starts that fail, and places that cannot be written ------------------------------------------------------


@pytest.mark.parametrize("command", ["train", "report", "demo", "explain"])
def test_a_file_in_the_place_of_a_directory_is_one_sentence(
    finished: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("precious")
    place = tmp_path / "file" / "deep" / "out"
    words: dict[str, list[Any]] = {
        "train": ["train", "tree-cycles", "--out", place],
        "report": ["report", finished, "-o", place],
        "demo": ["demo", "--out", place],
        "explain": [*WORDS, place],
    }
    monkeypatch.setattr("reproduction.training._fit", None)  # nothing is trained for a place that cannot be written
    done = cf2(*words[command])
    assert done.returncode == 1
    assert done.said.count("Error: ") == 1
    assert str(tmp_path / "file") in done.said
    assert (tmp_path / "file").read_text() == "precious"
