"""Every command has help with an example, honest exit codes, and JSON alone on stdout."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cf2.cli import app
from cf2.terminal import guarded

COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]
RUNNER = CliRunner()


def cf2(*words: str, cwd: Path | None = None) -> SimpleNamespace:
    """Run a command in this process, as `main` does, and give its exit code and what it wrote."""
    stdout, stderr, code = StringIO(), StringIO(), 0
    with chdir(cwd or Path.cwd()), redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            guarded(lambda: app(list(words)))
        except SystemExit as end:
            code = int(end.code or 0)
    return SimpleNamespace(returncode=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run"
    done = cf2(
        "explain",
        "tree-cycles",
        "--nodes",
        "511-516",
        "--method",
        "cf2",
        "--method",
        "random",
        "--seed",
        "0",
        "--set",
        "k=6",
        "--out",
        str(path),
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert {row["method"] for row in json.loads(done.stdout)["rows"]} == {"cf2", "random"}
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_parses(command: str) -> None:
    shown = RUNNER.invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    example = re.search(r"Example: cf2 (\S+)", shown.stdout)
    assert example
    assert example[1] == command


def test_the_commands_of_the_design_are_there() -> None:
    wanted = ["demo", "datasets", "methods", "train", "explain", "evaluate", "report", "serve", "reproduce", "bench"]
    assert set(wanted) <= set(COMMANDS)


def test_version_and_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-m", "cf2", "--version"], capture_output=True, text=True)
    assert re.fullmatch(r"cf2 \d+\.\d+\.\d+\n", done.stdout)


def test_methods_as_json() -> None:
    rows = json.loads(cf2("methods", "--json").stdout)
    assert {"cf2", "cf2-relaxed", "gnnexplainer", "cf-gnnexplainer", "gem", "pgexplainer", "gradient", "random"} <= {
        row["name"] for row in rows
    }
    assert all(set(row) == {"name", "summary"} for row in rows)


def test_evaluate_and_report(run: Path, tmp_path: Path) -> None:
    scores = json.loads(cf2("evaluate", str(run), "--json").stdout)
    assert {"n", "pn", "ps", "fns", "size", "acc", "pr", "re", "f1"} <= set(scores)
    assert scores["n"] == 6
    done = cf2("report", str(run), "-o", str(tmp_path / "r.html"))
    assert done.returncode == 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>") or "<html" in (
        tmp_path / "r.html"
    ).read_text()


def test_a_finished_run_is_not_overwritten_but_resumed(run: Path) -> None:
    words = ["explain", "tree-cycles", "--nodes", "511-516", "--seed", "0", "--out", str(run)]
    refused = cf2(*words)
    assert refused.returncode == 1
    assert "--resume" in refused.stderr
    assert cf2(*words, "--resume").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["explain"], 2, "either a data set or --data"),
        (["explain", "ba-shapes"], 2, "--out"),
        (["explain", "ba-shapes", "--out", "x", "--method", "cf22"], 2, "Did you mean 'cf2'"),
        (["explain", "ba-shapes", "--out", "x", "--engine", "rays"], 2, "Did you mean 'ray'"),
        (["explain", "ba-shapes", "--out", "x", "--nodes", "a"], 2, "3,17,40-44"),
        (["explain", "ba-shapes", "--out", "x", "--set", "epochs"], 2, "NAME=VALUE"),
        (["explain", "ba-shapes", "--out", "x", "--set", "epoch=3"], 1, "Did you mean 'epochs'"),
        (["explain", "ba-shapes", "--out", "x", "--nodes", "9999"], 1, "from 0 to 699"),
        (["explain", "ba-shape", "--out", "x"], 1, "ba-shapes"),
        (["explain", "--data", "nowhere:make", "--out", "x"], 1, "nowhere"),
        (["evaluate", "missing"], 1, "not there"),
        (["report", "missing"], 1, "not there"),
        (["serve", "missing"], 1, "not there"),
        (["train", "nope"], 1, "data set"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_mistakes_end_in_one_sentence(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    done = cf2(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_what_is_too_large_is_named_and_the_rest_is_explained(tmp_path: Path) -> None:
    words = ["explain", "ba-shapes", "--nodes", "300-303,420", "--method", "gradient", "--set", "k=3"]
    done = cf2(*words, "--max-units", "200", "--json", "--out", str(tmp_path / "json"))
    refused = json.loads(done.stdout)["rows"][0]["refused"]
    assert refused
    assert len(refused) < 5
    said = cf2(*words, "--max-units", "200", "--out", str(tmp_path / "run"))
    assert said.returncode == 0
    text = " ".join(said.stderr.split())
    assert f"{len(refused)} of 5 were not explained" in text
    assert f"--max-units 200: {', '.join(map(str, refused))}. Add --reduce gradient" in text


def test_a_users_own_model(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom torch_geometric.data import Data\nfrom torch_geometric.nn import GCN\n"
        "def make():\n    torch.manual_seed(0)\n"
        "    ring = torch.arange(12)\n"
        "    edges = torch.stack([ring, (ring + 1) % 12])\n"
        "    return GCN(3, 8, 2, 2), Data(x=torch.randn(12, 3), edge_index=torch.cat([edges, edges.flip(0)], 1))\n"
    )
    done = cf2("explain", "--data", "mine:make", "--nodes", "0,4", "--out", "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["n"] == 2
