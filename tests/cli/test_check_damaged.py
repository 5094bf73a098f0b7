"""Runs damaged at random: no command uses what is not its own, hangs, or shows a traceback."""

from __future__ import annotations

import json
import logging
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from commands_here import Done, cf2
from damages import DAMAGES, HARMLESS

from cf2.errors import CF2Error
from cf2.results.explanation import Explanation
from cf2.runs import session
from cf2.runs import store as shards
from cf2.runs.store import Store
from toys import same_results

METHODS = ["--method", "gradient", "--method", "random", "--seed", "0"]
WORDS = ["explain", "tree-cycles", "--nodes", "511-519", *METHODS]
HANG = 900  # seconds; what takes longer than that waits for something that does not come


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A run of many small shards, and another of the same keys and one more, with another setting."""
    base = tmp_path_factory.mktemp("damaged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SECONDS_PER_SHARD", 0.0)
        patch.setattr(session, "UNITS_PER_PART", 60)
        other = ["explain", "tree-cycles", "--nodes", "511-520", *METHODS]
        assert cf2(*WORDS, "--set", "k=6", "--out", base / "run").returncode == 0
        assert cf2(*other, "--set", "k=3", "--out", base / "other").returncode == 0
        assert len(list((base / "run" / "shards").iterdir())) > 4
        yield base / "run", base / "other"


@contextmanager
def no_hang() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def command(*words: object) -> Done:
    with no_hang():
        done = cf2(*words)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert "bug in cf2" not in done.stderr
    if done.returncode == 1 and words[0] != "check":
        assert done.said.count("Error: ") == 1
    return done


def true_results(run: Path) -> dict[str, dict[Any, Explanation]]:
    opened = Store.open(run)
    return {method: {e.key: e for e in opened.explanations(method)} for method in opened.methods()}


def check_evaluate(path: Path, true: dict[str, dict[Any, Explanation]], figures: dict[str, Any]) -> None:
    """What is evaluated is true, and says how much of the run it is about."""
    done = command("evaluate", path, "--json")
    if done.returncode:
        return
    rows = json.loads(done.stdout)
    for row in rows.get("methods", [rows]):
        stored = Store.open(path).explanations(row["method"])
        assert row["finished"] == row["n"] == len(stored)
        assert row["asked"] == 9
        assert same_results(stored, [true[row["method"]][e.key] for e in stored])
        if row["n"] == 9:
            assert {**row, "seconds": 0} == {**figures[row["method"]], "seconds": 0}


SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 400))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_run_is_never_silently_wrong(runs: tuple[Path, Path], tmp_path: Path, seed: int) -> None:
    run, other = runs
    path, rng = tmp_path / "run", random.Random(seed)
    shutil.copytree(run, path)
    true = true_results(run)
    figures = {row["method"]: row for row in json.loads(cf2("evaluate", run, "--json").stdout)["methods"]}
    chosen = rng.sample(sorted(DAMAGES), rng.choice([1, 1, 1, 2, 3]))
    for damage in chosen:
        with suppress(OSError):  # what one of them needs, another may have taken away
            DAMAGES[damage](path, other, rng)
    check_evaluate(path, true, figures)
    checked = command("check", path, "--json", "--sample", rng.choice([0, 3]))
    assert checked.returncode == int(any(damage not in HARMLESS for damage in chosen)), chosen
    command("report", path, "-o", tmp_path / "report.html")
    resumed = command(*WORDS, "--set", "k=6", "--out", path, "--resume")
    check_evaluate(path, true, figures)
    if resumed.returncode == 0:
        found = true_results(path)
        assert all(same_results(list(found[m].values()), list(true[m].values())) for m in true)
        assert command("check", path, "--json").returncode == 0


FOR_GOOD = ("pipe_for_lock", "directory_for_lock", "file_for_shards", "directory_for_context")


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_can_be_mended_is_mended_by_resuming_and_nothing_is_thrown_away(
    runs: tuple[Path, Path], tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, caplog_of = tmp_path / "run", caplog.at_level(logging.WARNING, logger="cf2")
    shutil.copytree(runs[0], path)
    DAMAGES[damage](path, runs[1], random.Random(1))
    with caplog_of:
        resumed = command(*WORDS, "--set", "k=6", "--out", path, "--resume")
    assert resumed.returncode == int("manifest" in damage or damage in FOR_GOOD)
    if "manifest" in damage:
        assert "manifest.json" in resumed.said or "keys was 10 keys" in resumed.said
        with suppress(CF2Error):
            assert len(Store.open(path).explanations()) == 0
    elif not resumed.returncode:
        found, true = true_results(path), true_results(runs[0])
        assert all(same_results(list(found[m].values()), list(true[m].values())) for m in true)
        refused = damage == "stray_file" or ("shard" in damage and damage not in ("delete_shard", "no_shards"))
        assert ("is set aside in set-aside" in caplog.text) == (path / "set-aside").is_dir() == refused
