"""A run may come from a stranger: opening it runs nothing, and a function that it names only runs if you say so."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from commands_here import cf2

from cf2.errors import CF2Error
from cf2.runs.store import Store
from cf2.samples import sources

HOSTILE = """
from pathlib import Path
Path("ran").touch()

def load():
    Path("ran").touch()
    raise RuntimeError
"""
EXPLAIN = ["explain", "tree-cycles", "--nodes", "511,512", "--method", "gradient", "--set", "k=2", "--out", "run"]
STRANGE = {"kind": "function", "function": "hostile_one:load", "data": "0", "weights": "0"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust")
    assert cf2(*EXPLAIN, cwd=folder).returncode == 0
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in `run`, and a module that leaves a file `ran` behind when it is imported."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "hostile_one.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def claim(source: dict[str, Any]) -> None:
    """Let the run name another source, as if it had been made with it."""
    Store.open("run").update(source=source)


def ran() -> bool:
    return Path("ran").exists()


@pytest.mark.parametrize(
    "words",
    [["evaluate", "run", "--json"], ["report", "run", "-o", "page.html"], ["check", "run"], [*EXPLAIN, "--resume"]],
)
def test_reading_a_run_runs_nothing_that_it_names(here: Path, words: list[str]) -> None:
    claim(STRANGE)
    done = cf2(*words)
    assert done.returncode == (1 if words[0] == "explain" else 0), done.stderr  # the run is not of this data set
    assert words[0] != "check" or "0 verdicts recomputed" in done.stdout
    assert ("Add --trust" in done.said) == (words[0] == "check")
    assert not ran()


def test_the_page_is_told_whether_the_function_is_trusted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("cf2.web.serve", lambda run, **options: given.update(options))
    claim(STRANGE)
    done = cf2("serve", "run", "--data", "other:load")
    assert done.returncode == 1
    assert "Expected --data to name the source of the run, the function hostile_one:load" in done.said
    assert not given
    for words, trust in (([], False), (["--trust"], True), (["--data", "hostile_one:load"], True)):
        assert cf2("serve", "run", *words).returncode == 0
        assert given["trust"] is trust
    assert not ran()


# -- restoring --------------------------------------------------------------------------------------------------


def test_a_function_runs_only_if_it_is_trusted(here: Path) -> None:
    with pytest.raises(CF2Error) as error:
        sources.restore(STRANGE)
    assert "Expected permission to run hostile_one:load" in str(error.value)
    assert "--trust or --data hostile_one:load" in str(error.value)
    assert not ran()
    with pytest.raises(CF2Error, match="RuntimeError"):
        sources.restore(STRANGE, trust=True)
    assert ran()


DATASET = {"kind": "dataset", "dataset": "tree-cycles", "checkpoint": "shipped", "root": None}


@pytest.mark.parametrize(
    "description",
    [
        None,
        {},
        {"kind": "function", "function": ["hostile_one:load"]},
        {"kind": "dataset"},
        {**DATASET, "dataset": 3},
        {**DATASET, "dataset": "../../etc"},
        {**DATASET, "checkpoint": 3},
        {**DATASET, "checkpoint": "/etc/passwd"},
        {**DATASET, "root": {"a": 1}},
        DATASET,  # without the digests of the data and the weights
    ],
)
@pytest.mark.parametrize("trust", [False, True])
def test_a_description_that_cannot_be_is_one_error(here: Path, description: Any, trust: bool) -> None:
    with pytest.raises(CF2Error):
        sources.restore(description, trust=trust)
    assert not ran()


class Touch:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_weights_that_are_a_pickle_are_not_unpickled(here: Path, how: str) -> None:
    assert cf2("train", "tree-cycles", "--epochs", 1, "--set", "hidden=2", "--out", "model").returncode == 0
    with Path("model.safetensors").open("wb") as stream:
        pickle.dump(Touch(), stream) if how == "pickle" else torch.save({"weight": Touch()}, stream)
    with pytest.raises(CF2Error, match=r"model\.safetensors"):
        sources.restore({**DATASET, "checkpoint": str(here / "model")}, trust=True)
    assert not ran()


def test_files_outside_of_the_run_are_named_before_they_are_read(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert cf2("train", "tree-cycles", "--epochs", 1, "--set", "hidden=2", "--out", "model").returncode == 0
    source = sources.from_dataset("tree-cycles", checkpoint=here / "model")
    with caplog.at_level("INFO", logger="cf2"):
        sources.restore(source.description)
    assert f"which are read: {here / 'model'}" in caplog.text
