"""`cf2 patterns` and `cf2 report --patterns`, from a run directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands_here import cf2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("patterns") / "run"
    words = ["explain", "tree-cycles", "--nodes", "511-534", "--method", "cf2", "--set", "effort=quick", "--out", path]
    assert cf2(*words).returncode == 0
    return path


def test_patterns_are_found_and_tested(run: Path) -> None:
    found = cf2("patterns", run, "--most", 100, "--count", 2, "--json").json
    cycles = [row for row in found["patterns"] if row["class_name"] == "cycle"]
    assert 1 <= len(cycles) <= 2
    first = cycles[0]
    assert len(first["pattern"]["targets"]) == 1
    assert all(0 <= first[name][1] <= first[name][0] <= first[name][2] <= 1 for name in ("coverage", "necessity"))
    assert found["about"]["seed"] == 0
    assert found["about"]["truth"]["instances"] > 0
    shown = cf2("patterns", run, "--most", 100)
    assert shown.returncode == 0
    assert first["pattern"]["text"] in shown.stdout
    assert cf2("patterns", run, "--most", 100, "--count", 2, "--json").json == found


def test_without_the_model_they_are_only_counted(run: Path) -> None:
    found = cf2("patterns", run, "--counted", "--json").json
    assert all(row["necessity"] is None for row in found["patterns"])
    assert any("No model was run" in note for note in found["about"]["notes"])


def test_a_function_of_a_run_is_not_run_without_trust(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nfrom cf2.samples.sources import from_dataset\n"
        "def load():\n    file = Path('called')\n"
        "    file.write_text((file.read_text() if file.exists() else '') + 'x')\n"
        "    s = from_dataset('tree-cycles')\n    return s.model, s.graphs[0]\n"
    )
    done = cf2("explain", "--data", "mine:load", "--nodes", "511-520", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before = (tmp_path / "called").read_text()
    counted = cf2("patterns", "run", "--json", cwd=tmp_path)
    assert "--trust" in counted.said
    assert (tmp_path / "called").read_text() == before
    assert cf2("patterns", "run", "--trust", "--most", 40, "--json", cwd=tmp_path).json["about"]["empty"]
    assert (tmp_path / "called").read_text() != before


def test_the_report_shows_them(run: Path, tmp_path: Path) -> None:
    done = cf2("report", run, "--patterns", "--out", tmp_path / "page.html", "--pictures", 3)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What the model looks for" in page
    assert 'href="#instance-' in page
    assert page.count('class="cf2-pattern"') >= 1


def test_bad_input(run: Path, tmp_path: Path) -> None:
    assert cf2("patterns", tmp_path / "nothing").returncode == 1
    assert cf2("patterns", run, "--labels", "colour").returncode == 1
    assert cf2("patterns", run, "--held-out", 2).returncode == 2


def test_what_is_found_is_kept_in_the_run_and_the_report_shows_it_without_the_model(run: Path, tmp_path: Path) -> None:
    found = cf2("patterns", run, "--most", 100, "--count", 2, "--json").json
    kept = json.loads((run / "patterns.json").read_text(encoding="utf-8"))
    assert kept == {name: found[name] for name in ("about", "patterns")}
    done = cf2("report", run, "--out", tmp_path / "page.html", "--pictures", 3)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What the model looks for" in page
    assert page.count('class="cf2-pattern"') == len(found["patterns"])
    assert cf2("check", run).returncode == 0  # a file beside the run's own does no harm


def test_edit_rules_are_kept_and_shown(tmp_path: Path) -> None:
    words = ["explain", "tree-cycles", "--nodes", "511-522", "--set", "effort=quick", "--question", "counterfactual"]
    assert cf2(*words, "--out", tmp_path / "run").returncode == 0
    found = cf2("patterns", tmp_path / "run", "--rules", "--most", 60, "--count", 2, "--json").json
    assert found["rules"][0]["support"] >= 1
    assert json.loads((tmp_path / "run" / "rules.json").read_text(encoding="utf-8"))["rules"] == found["rules"]
    shown = cf2("patterns", tmp_path / "run", "--rules", "--most", 60, "--count", 2)
    assert found["rules"][0]["rule"] in shown.stdout
    assert cf2("report", tmp_path / "run", "--out", tmp_path / "page.html", "--pictures", 3).returncode == 0
    assert "What would have to change" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_rules_of_answers_that_change_nothing_are_refused(run: Path) -> None:
    done = cf2("patterns", run, "--rules")
    assert done.returncode == 1
    assert "Expected" in done.stderr
