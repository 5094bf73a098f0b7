"""`cf2 patterns` and `cf2 report --patterns`, from a run directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands_here import cf2

FEW = ("--most", 100, "--count", 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("patterns") / "run"
    words = ["explain", "tree-cycles", "--nodes", "511-534", "--method", "cf2", "--set", "effort=quick", "--out", path]
    assert cf2(*words).returncode == 0
    return path


def report(run: Path, page: Path, *words: str) -> str:
    done = cf2("report", run, "--out", page, "--pictures", 3, *words)
    assert done.returncode == 0, done.stderr
    return page.read_text(encoding="utf-8")


def test_patterns_are_found_tested_kept_and_shown(run: Path, tmp_path: Path) -> None:
    found = cf2("patterns", run, *FEW, "--json").json
    cycles = [row for row in found["patterns"] if row["class_name"] == "cycle"]
    assert 1 <= len(cycles) <= 2
    first = cycles[0]
    assert len(first["pattern"]["targets"]) == 1
    assert all(0 <= first[name][1] <= first[name][0] <= first[name][2] <= 1 for name in ("coverage", "necessity"))
    assert found["about"]["seed"] == 0
    assert found["about"]["truth"]["instances"] > 0
    assert first["pattern"]["text"] in cf2("patterns", run, *FEW).stdout
    kept = json.loads((run / "patterns.json").read_text(encoding="utf-8"))
    assert kept == {name: found[name] for name in ("about", "patterns")}
    page = report(run, tmp_path / "page.html")  # without the model
    assert "What the model looks for" in page
    assert page.count('class="cf2-pattern"') == len(found["patterns"])
    assert cf2("check", run).returncode == 0  # a file beside the run's own does no harm
    assert 'href="#instance-' in report(run, tmp_path / "page.html", "--patterns", "--pictures", "24")


def test_a_function_of_a_run_is_not_run_without_trust(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nfrom cf2.samples.sources import from_dataset\n"
        "def load():\n    with open('called', 'a') as file:\n        file.write('x')\n"
        "    s = from_dataset('tree-cycles')\n    return s.model, s.graphs[0]\n"
    )
    done = cf2("explain", "--data", "mine:load", "--nodes", "511-520", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before = (tmp_path / "called").read_text()
    said = cf2("patterns", "run", cwd=tmp_path).said
    assert "--trust" in said
    assert "No model was run" in said
    assert (tmp_path / "called").read_text() == before
    assert cf2("patterns", "run", "--trust", "--most", 40, "--json", cwd=tmp_path).json["about"]["empty"]
    assert (tmp_path / "called").read_text() != before


@pytest.mark.parametrize(("words", "code"), [(("--labels", "colour"), 1), (("--held-out", 2), 2), (("--rules",), 1)])
def test_bad_input(run: Path, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    done = cf2("patterns", run, *words)
    assert done.returncode == code
    assert code == 2 or "Expected" in done.stderr
    assert cf2("patterns", tmp_path / "nothing").returncode == 1


def test_edit_rules_are_kept_and_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["explain", "tree-cycles", "--nodes", "511-522", "--set", "effort=quick", "--question", "counterfactual"]
    assert cf2(*words, "--out", run).returncode == 0
    found = cf2("patterns", run, "--rules", *FEW, "--json").json
    assert found["rules"][0]["support"] >= 1
    assert json.loads((run / "rules.json").read_text(encoding="utf-8"))["rules"] == found["rules"]
    assert found["rules"][0]["rule"] in cf2("patterns", run, "--rules", *FEW).stdout
    assert "What would have to change" in report(run, tmp_path / "page.html")
