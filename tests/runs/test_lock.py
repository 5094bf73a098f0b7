"""One writer at a time, who has a name; readers are never kept waiting, and what dead writers leave is swept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ring import KEYS, left, make, spec_of

from cf2.errors import CF2Error
from cf2.runs import engines
from cf2.runs.store import Store

HOLD = """
import sys
from cf2.runs.store import Store

with Store.open(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path, undisturbed: Store) -> Store:
    run = make(tmp_path / "run")
    run.write(run.jobs()[0], 0, undisturbed.explanations().items[:4])
    return run


@pytest.fixture
def holder(run: Store) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes to the run."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with process:
        yield process
        process.kill()


def test_a_second_writer_is_told_who_the_first_one_is(run: Store, holder: subprocess.Popen[str]) -> None:
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    writes = (
        lambda: make(run.path, resume=True),
        lambda: engines.explain_run(run),
        lambda: run.add(spec_of(seed=1)),
        lambda: run.write(run.jobs()[0], 1, run.explanations().items[:1]),
    )
    for write in writes:
        with pytest.raises(CF2Error, match=rf"no other writer.*process {holder.pid}.*Wait"):
            write()
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == before


def test_readers_do_not_wait(run: Store, holder: subprocess.Popen[str]) -> None:
    again = Store.open(run.path)
    assert len(again.explanations()) == 4
    assert again.finished()[0].finished == 4
    assert left(again) == KEYS[4:]


def test_the_lock_of_a_process_that_was_killed_is_free(run: Store, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert (run.path / ".lock").read_text().split()[0] == str(holder.pid)
    engines.explain_run(make(run.path, resume=True))
    assert left(run) == []


def test_a_writer_holds_the_lock_from_its_first_to_its_last_part(run: Store) -> None:
    def other_writer(steps: int) -> None:
        with pytest.raises(CF2Error, match=f"process {os.getpid()}"), Store.open(run.path).locked():
            pass

    engines.explain_run(run, progress=other_writer)
    with Store.open(run.path).locked():
        pass


def test_what_dead_writers_leave_is_swept_and_nothing_else(run: Store) -> None:
    for name in ("cf2-000000.parquet", "manifest.json", "context.json", "trained-gem-seed0.safetensors"):
        (run.path / f"partial-1-{name}").write_bytes(b"half")
    others = [run.path / f"partial-1-{name}" for name in ("report.html", "found.parquet")]
    for other in others:
        other.write_bytes(b"another command writes here, too")
    (run.path / "partial-1-cf2-000001.parquet").mkdir()
    make(run.path, resume=True)
    assert set(run.path.glob("partial-*")) == {*others, run.path / "partial-1-cf2-000001.parquet"}


def test_a_run_that_was_begun_anew_meanwhile_is_not_written_to(run: Store, tmp_path: Path) -> None:
    make(tmp_path / "other")
    os.replace(tmp_path / "other" / "manifest.json", run.path / "manifest.json")
    with pytest.raises(CF2Error, match="but got a newer one"):
        engines.explain_run(run)
