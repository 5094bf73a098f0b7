"""Killed at any moment and resumed, on every engine: the same results as undisturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cf2.runs.store import Store
from toys import same_results

DRIVER = """
import sys
from cf2.samples.sources import from_dataset
from cf2.runs import engines, store
from cf2.runs.store import Store
from cf2.options import Spec

store.SECONDS_PER_SHARD = 0.0
keys = range(511, 601)
spec = Spec("cf2-relaxed", settings={"epochs": 100})
run = Store.create(sys.argv[1], from_dataset("tree-cycles"), spec, keys=keys, chunk_size=5, resume=True)
engines.explain_run(run, engine=sys.argv[2], workers=2)
"""
KEYS = range(511, 601)


def start(run: Path, engine: str, temporary: str = "") -> subprocess.Popen[bytes]:
    """A run as a program of its own, which can be killed; Ray keeps its files where `temporary` says."""
    command = [sys.executable, "-c", DRIVER, str(run), engine]
    with run.with_suffix(".log").open("ab") as log:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_TMPDIR": temporary}
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def processes_with(text: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [int(place.parent.name)] if text in line else []
    return found


slow = pytest.mark.slow
PARTS = ["driver", pytest.param("raylet/raylet", marks=slow), pytest.param("gcs/gcs_server", marks=slow)]


@pytest.mark.parametrize("part", PARTS)
def test_what_is_finished_is_kept_when_a_part_of_ray_is_killed_and_nothing_runs_on(tmp_path: Path, part: str) -> None:
    pytest.importorskip("ray")
    run, whole = tmp_path / "run", tmp_path / "whole"
    with tempfile.TemporaryDirectory(prefix="cf2-ray-", ignore_cleanup_errors=True) as temporary:
        process = start(run, "ray", temporary)
        while process.poll() is None and not list(run.glob("shards/*.parquet")):
            time.sleep(0.01)
        for number in [process.pid] if part == "driver" else processes_with(temporary):
            with suppress(OSError):
                if part == "driver" or part in Path(f"/proc/{number}/cmdline").read_text():
                    os.kill(number, signal.SIGKILL)
        if (code := process.wait()) == 1:
            said = run.with_suffix(".log").read_text()
            assert "Expected the Ray cluster to stay" in said
            assert "--resume" in said
        # Workers go on without a gcs_server, so that a run may end before it misses one.
        assert code in {"driver": [-signal.SIGKILL], "raylet/raylet": [1], "gcs/gcs_server": [0, 1]}[part]
        kept = len(Store.open(run).explanations())
        assert kept == len(KEYS) if code == 0 else 0 < kept < len(KEYS)
        while processes_with(temporary):  # Ray ends its processes by itself when their driver is gone
            time.sleep(0.1)
    for path in (run, whole):
        assert start(path, "local").wait() == 0, path.with_suffix(".log").read_text()
    found = Store.open(run).explanations()
    assert [e.key for e in found] == list(KEYS)
    assert same_results(found, Store.open(whole).explanations())


@slow
@pytest.mark.parametrize("engine", ["local", "processes", "ray"])
def test_ten_kills_at_random_moments_leave_the_same_results(tmp_path: Path, engine: str) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    assert start(tmp_path / "whole", "local").wait() == 0
    whole = Store.open(tmp_path / "whole").explanations()
    draw, kills, finished, killed = random.Random(7), 0, 0, True
    while kills < 10 or killed:
        run = tmp_path / f"run-{finished}"
        with tempfile.TemporaryDirectory(prefix="cf2-ray-", ignore_cleanup_errors=True) as temporary:
            wanted = len(list(run.glob("shards/*.parquet"))) + draw.randrange(1, 4)
            process = start(run, engine, temporary)
            while process.poll() is None and len(list(run.glob("shards/*.parquet"))) < wanted:
                time.sleep(0.01)
            time.sleep(draw.random() * 0.2)
            if kills < 10 and process.poll() is None:
                process.kill()
            killed = process.wait() == -signal.SIGKILL
            while processes_with(temporary):
                time.sleep(0.1)
        if killed:
            kills += 1
            continue
        assert process.returncode == 0, run.with_suffix(".log").read_text()
        assert same_results(Store.open(run).explanations(), whole)
        finished += 1
    print(f"{engine}: {kills} kills, {finished} runs, the same results")
