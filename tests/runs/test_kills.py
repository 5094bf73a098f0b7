"""Killed at any moment and resumed, on every engine: the same results as undisturbed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cf2.results.explanations import same_results
from cf2.runs.store import Store

DRIVER = """
import sys
from cf2.samples.sources import from_dataset
from cf2.runs import engines, store
from cf2.runs.store import Store
from cf2.options import Spec

store.SECONDS_PER_SHARD = 0.0
keys = range(511, int(sys.argv[3]))
spec = Spec("cf2-relaxed", settings={"epochs": 100})
run = Store.create(sys.argv[1], from_dataset("tree-cycles"), spec, keys=keys, chunk_size=5, resume=True)
engines.explain_run(run, engine=sys.argv[2], workers=2)
"""


class Driver:
    """Starts runs as programs of their own, which can be killed."""

    def __init__(self, base: Path) -> None:
        self.base, self.stop = base, 601  # the key after the last
        self.ray = tempfile.mkdtemp(prefix="cf2-ray-")
        self.environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_TMPDIR": self.ray}

    def start(self, name: str, engine: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", DRIVER, str(self.base / name), engine, str(self.stop)]
        log = (self.base / f"{name}.log").open("ab")
        with log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def finish(self, name: str, engine: str) -> None:
        assert self.start(name, engine).wait() == 0, (self.base / f"{name}.log").read_text()

    def shards(self, name: str) -> int:
        return len(list((self.base / name).glob("shards/*.parquet")))

    def wait_for_more(self, name: str, process: subprocess.Popen[bytes], count: int) -> None:
        goal = self.shards(name) + count
        while process.poll() is None and self.shards(name) < goal:
            time.sleep(0.01)

    def wait_for_ray_to_end(self) -> None:
        """Ray ends its processes by itself when their driver is gone."""
        while processes_with(self.ray):
            time.sleep(0.1)


def processes_with(text: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [int(place.parent.name)] if text in line else []
    return found


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path)
    yield made
    shutil.rmtree(made.ray, ignore_errors=True)


def check_same(driver: Driver) -> None:
    driver.finish("whole", "local")
    found = Store.open(driver.base / "run").explanations()
    assert [e.key for e in found] == list(range(511, driver.stop))
    assert same_results(found, Store.open(driver.base / "whole").explanations())


slow = pytest.mark.slow
PARTS = ["driver", pytest.param("raylet/raylet", marks=slow), pytest.param("gcs/gcs_server", marks=slow)]


@pytest.mark.parametrize("part", PARTS)
def test_what_is_finished_is_kept_when_a_part_of_ray_is_killed_and_nothing_runs_on(driver: Driver, part: str) -> None:
    pytest.importorskip("ray")
    process = driver.start("run", "ray")
    driver.wait_for_more("run", process, 1)
    for number in [process.pid] if part == "driver" else processes_with(driver.ray):
        with suppress(OSError):
            if part == "driver" or part in Path(f"/proc/{number}/cmdline").read_text():
                os.kill(number, 9)
    if process.wait() == 1:
        said = (driver.base / "run.log").read_text()
        assert "Expected the Ray cluster to stay" in said
        assert "--resume" in said
    else:
        assert part == "driver"
    assert 0 < len(Store.open(driver.base / "run").explanations()) < 90
    driver.wait_for_ray_to_end()
    driver.finish("run", "local")
    check_same(driver)
