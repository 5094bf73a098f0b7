"""`cf2 explain` without a directory, the list of runs, and the rule by which methods that only rank are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands_here import cf2

from cf2.runs.store import Store

BOTH = ("explain", "ba-shapes", "--nodes", "300,301", "--method", "gradient", "--method", "cf2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_finds_its_own_place_and_never_that_of_another(here: Path) -> None:
    first, second = (cf2("explain", "ba-shapes", "--nodes", "300", "--json").json["run"] for _ in range(2))
    assert (first, second) == ("runs/ba-shapes-cf2", "runs/ba-shapes-cf2-2")
    again = cf2("explain", "ba-shapes", "--nodes", "300", "--resume", "--json").json
    assert again["run"] == second
    listed = cf2("runs", "--json").json
    assert [row["run"] for row in listed] == [first, second]
    assert [(row["data"], row["rows"], row["finished"]) for row in listed] == [("ba-shapes", ["cf2"], 1)] * 2
    assert "ba-shapes-cf2-2" in cf2("runs").stdout
    (here / "runs" / "ba-shapes-cf2" / "manifest.json").write_text("{")
    broken = cf2("runs")
    assert broken.returncode == 0
    assert "runs/ba-shapes-cf2: Expected" in broken.said


def test_without_runs_it_says_how_to_make_one() -> None:
    done = cf2("runs")
    assert done.returncode == 1
    assert "Make one with: cf2 explain" in done.said


def test_methods_that_rank_choose_as_many_units_as_the_one_that_searches(here: Path) -> None:
    done = cf2(*BOTH, "--out", "run")
    assert "only ranks units; selected: as many as cf2 selects for the same instance" in " ".join(done.stdout.split())
    assert "as many as cf2 selects" in " ".join(cf2("evaluate", "run").stdout.split()), "it is kept in the run"
    run = Store.open(here / "run")
    leader, ranked = run.explanations("cf2"), run.explanations("gradient")
    assert [e.size for e in ranked] == [e.size for e in leader]
    for e in ranked:
        assert e.scores[e.selected].min() >= e.scores[~e.selected].max(), "the highest scores"
    assert run.job("gradient").sizes == tuple((e.key, e.size) for e in leader)


@pytest.mark.parametrize(
    ("words", "rule", "size"),
    [
        (("--set", "k=4"), "the 4 units with the highest scores", 4),
        (("--sizes", "2"), "", None),
        (("--set", "threshold=0.4"), "the units with a score above 0.4", None),
    ],
)
def test_other_rules(words: tuple[str, ...], rule: str, size: int | None) -> None:
    done = cf2(*BOTH, "--out", "run", "--json", *words)
    if not rule:
        assert "for `sizes`, but got 'cf2'" in done.said
        return
    row = next(row for row in done.json["rows"] if row["method"] == "gradient")
    assert row["rule"] == rule
    assert size is None or row["size"] == size
