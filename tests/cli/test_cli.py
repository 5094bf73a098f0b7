"""Every command has help with an example, honest exit codes, and JSON alone on stdout."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from io import StringIO
from pathlib import Path

import pytest
from commands_here import COMMANDS, cf2
from rich.console import Console
from typer.testing import CliRunner

from cf2.cli import doctor
from cf2.cli.commands import app
from cf2.methods import registry
from cf2.runs.store import Store
from cf2.samples import registry as datasets

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    words = ["explain", "tree-cycles", "--nodes", "511-516", "--method", "cf2", "--method", "random"]
    rows = cf2(*words, "--seed", 0, "--set", "k=6", "--out", path, "--json").json["rows"]
    assert [row["method"] for row in rows] == ["cf2", "random"]
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_parses(command: str) -> None:
    shown = RUNNER.invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    example = re.search(r"Example: cf2 (\S+)", shown.stdout)
    assert example
    assert example[1] == command


def test_the_commands_are_there_and_a_version() -> None:
    wanted = "demo doctor datasets methods train explain evaluate report serve runs check patterns reproduce bench"
    assert set(wanted.split()) <= set(COMMANDS)
    done = subprocess.run([sys.executable, "-m", "cf2", "--version"], capture_output=True, text=True)
    assert re.fullmatch(r"cf2 \d+\.\d+\.\d+\n", done.stdout)


def test_the_doctor_names_what_is_missing_and_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    facts = cf2("doctor", "--json").json
    assert {re.split("[<>=]", text)[0].replace("_", "-") for text in project["dependencies"]} == {
        name.replace("_", "-") for name in facts["required"]
    }
    assert None not in facts["required"].values()
    parts = {part["extra"] for part in facts["extras"]}
    assert parts == set(project["optional-dependencies"]) - {"all", "dev"}

    there = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: None if name in ("rdkit", "scipy") else there(name))
    shown = RUNNER.invoke(app, ["doctor"], env={"COLUMNS": "200"})
    assert "pip install 'cf2[molecules]'" in shown.output
    assert re.search(r"scipy\s*│ missing", shown.stdout)
    assert "scipy must be installed" in shown.output


def test_methods_say_all_that_is_special_about_them() -> None:
    rows = {row.pop("name"): row for row in cf2("methods", "--json").json}
    assert list(rows) == registry.names()
    assert all(set(row) == {"summary", "units", "levels", "searches", "draws", "needs"} for row in rows.values())
    trained = [name for name, row in rows.items() if row["needs"] == "training"]
    assert trained == ["gem", "pgexplainer", "rcexplainer", "tage", "gisst"]
    assert [name for name, row in rows.items() if row["draws"]] == ["subgraphx", "random"]
    shown = cf2("methods").stdout
    assert all(name in shown for name in rows)


def test_datasets_hold_the_synthetic_ones_and_say_where_the_others_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pooch

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.delenv("CF2_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(pooch, "retrieve", unreachable)
    rows = {row["name"]: row for row in cf2("datasets", "--data-root", tmp_path, "--json").json}
    assert list(rows) == datasets.names()
    assert rows["ba-shapes"]["nodes"] == 700
    assert str(tmp_path) in rows["nci1"]["problem"]
    done = cf2("datasets", "--data-root", tmp_path)
    assert "tree-cycles" in done.stdout
    assert "nci1 is not available" in done.said


def test_the_scores_and_the_report_have_every_method(run: Path, tmp_path: Path) -> None:
    scores = cf2("evaluate", run, "--json").json
    assert {"n", "pn", "ps", "fns", "size", "acc", "pr", "re", "f1", "intervals"} <= set(scores)
    assert (scores["n"], scores["method"]) == (6, "cf2")
    assert [row["method"] for row in scores["methods"]] == ["cf2", "random"]
    assert scores["methods"][0] == {name: value for name, value in scores.items() if name != "methods"}
    one = cf2("evaluate", run, "--method", "random", "--json").json
    assert one == scores["methods"][1]
    assert "methods" not in one
    shown = cf2("evaluate", run).stdout
    assert "cf2" in shown
    assert "random" in shown
    assert str(tmp_path / "r.html") in cf2("report", run, "-o", tmp_path / "r.html").stdout
    page = (tmp_path / "r.html").read_text()
    assert "<html" in page
    assert "random" in page


def test_seeds_are_compared_by_their_overlap(tmp_path: Path) -> None:
    words = ["explain", "tree-cycles", "--nodes", "511-513", "--method", "random", "--set", "k=3", "--seeds", 2]
    (row,) = cf2(*words, "--out", tmp_path / "run", "--json").json["rows"]
    assert row["n"] == 6
    assert 0 <= row["stability"] < 1
    assert f"overlap over seeds {row['stability']:.3f}" in cf2(*words, "--out", tmp_path / "again").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["explain"], 2, "either a data set or --data"),
        (["explain", "ba-shapes", "--out", "x", "--method", "cf22"], 2, "Did you mean 'cf2'"),
        (["explain", "ba-shapes", "--out", "x", "--engine", "rays"], 2, "Did you mean 'ray'"),
        (["explain", "ba-shapes", "--out", "x", "--set", "epochs"], 2, "NAME=VALUE"),
        (["explain", "ba-shapes", "--out", "x", "--set", "epoch=3"], 1, "Did you mean 'epochs'"),
        (["explain", "ba-shapes", "--out", "x", "--question", "whynot"], 1, "Did you mean 'why'"),
        (["explain", "ba-shapes", "--out", "x", "--device", "abacus"], 1, "a device that torch has"),
        (["explain", "ba-shapes", "--out", "x", "--nodes", "9999"], 1, "from 0 to 699"),
        (["explain", "ba-shape", "--out", "x"], 1, "ba-shapes"),
        (["explain", "--data", "nowhere:make", "--out", "x"], 1, "nowhere"),
        (["explain", "ba-shapes", "--effort", "quick"], 2, "--set effort=…"),
        (["explain", "ba-shapes", "--metod", "cf2"], 2, "--method"),
        (["evaluate", "missing"], 1, "not there"),
        (["report", __file__], 1, "which is a file"),
        (["serve", "missing"], 1, "not there"),
        (["train", "nope"], 1, "data set"),
        (["train", "ba-shapes", "--arch", "gatt"], 2, "Did you mean 'gat'"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_mistakes_end_in_one_sentence(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    done = cf2(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.said
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_method_that_the_run_has_not_is_said(run: Path) -> None:
    done = cf2("evaluate", run, "--method", "gradient")
    assert done.returncode == 1
    assert "cf2-seed0, random-seed0" in done.said


def test_the_demo_compares_methods_and_writes_a_report(tmp_path: Path) -> None:
    shown = cf2("demo", "--nodes", 2, "--out", tmp_path / "demo", "--json").json
    assert [row["method"] for row in shown["rows"]] == [
        name
        for name in registry.names()
        if registry.get(name).needs == "nothing"
        and "edges" in (registry.get(name).units or ("edges",))
        and not hasattr(registry.get(name).settings, "budget")
    ]
    assert all(row["n"] == 2 for row in shown["rows"])
    for row in shown["rows"]:
        ranks = registry.get(row["method"]).ranks
        assert row.get("rule", "") == ("the 6 units with the highest scores" if ranks else "")
    assert Path(shown["report"]).read_text().count("<html") == 1


def test_a_trained_model_is_saved_and_explained(tmp_path: Path) -> None:
    words = ["train", "tree-cycles", "--epochs", 3, "--set", "hidden=4", "--out", tmp_path / "model", "--json"]
    facts = cf2(*words).json
    known = {"dataset", "arch", "seed", "path", "train_accuracy", "validation_accuracy", "test_accuracy", "seconds"}
    assert known | {"metric"} == set(facts)
    about = json.loads((tmp_path / "model.json").read_text())
    assert (about["recipe"]["epochs"], about["recipe"]["hidden"]) == (3, 4)
    words = ["explain", "tree-cycles", "--checkpoint", facts["path"], "--nodes", "511", "--method", "gradient"]
    assert cf2(*words, "--out", tmp_path / "run", "--json").json["rows"][0]["n"] == 1
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["source"]["checkpoint"] == facts["path"]


def test_a_terminal_shows_how_far_a_command_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = StringIO()
    monkeypatch.setattr("cf2.cli.terminal.err", Console(file=shown, force_terminal=True, width=120))
    cf2("explain", "tree-cycles", "--nodes", "511", "--method", "gradient", "--out", tmp_path / "run")
    assert re.search(r"explaining.*1/1", shown.getvalue())
    cf2("train", "tree-cycles", "--epochs", 2, "--set", "hidden=2", "--out", tmp_path / "model")
    assert re.search(r"training accuracy.*2/2", shown.getvalue())


def test_the_help_of_explain_begins_with_examples_and_is_grouped() -> None:
    text = RUNNER.invoke(app, ["explain", "--help"], env={"COLUMNS": "80"}).stdout
    groups = ["Options", "Constraints", "Counterfactuals", "The model", "Typed graphs", "What to ask", "Switches"]
    places = [text.index("Example: cf2 explain"), *(text.index(f"─ {group} ─") for group in groups)]
    assert places[0] == min(places)
    assert len(text.splitlines()) < 230


def test_a_target_is_a_class_by_its_name(tmp_path: Path) -> None:
    words = ["explain", "ba-shapes", "--nodes", "300", "--question", "counterfactual", "--set", "effort=quick"]
    run = cf2(*words, "--target", "floor", "--out", tmp_path / "run", "--json").json["run"]
    assert [e.target for e in Store.open(run).explanations()] == [2]
    done = cf2(*words, "--target", "flour", "--out", tmp_path / "other")
    assert done.returncode != 0
    assert "floor" in done.said
