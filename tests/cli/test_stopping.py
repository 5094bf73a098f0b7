"""Ctrl-C and SIGTERM: what is kept is said, workers end, locks are released, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from commands_here import cf2

SLOW = """
import os, pathlib, time
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN


class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gnn = GCN(3, 4, 2, 2)

    def forward(self, x, edge_index):
        if "CF2_TEST_SLOW" in os.environ:
            pathlib.Path(os.environ["CF2_TEST_SLOW"], f"runs-{os.getpid()}").touch()
            time.sleep(0.1)
        return self.gnn(x, edge_index)


def make():
    torch.manual_seed(0)
    at = torch.arange(20)
    ahead = torch.stack([at, (at + 1) % 20])
    return Slow().eval(), Data(x=torch.randn(20, 3), edge_index=torch.cat([ahead, ahead.flip(0)], 1))
"""
WORDS = ["--method", "gradient", "--set", "k=2", "--out", "run", "--workers", "2"]
PATIENCE = 600  # seconds: for what never ends, not for what is slow


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell has what it starts in the background ignore Ctrl-C, and so does all that is started from there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def wait_until(happened: Callable[[], bool], what: str) -> None:
    for _ in range(20 * PATIENCE):  # looks are counted and not seconds: a machine that stands still fails nothing
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen")


def descendants(mark: str) -> list[str]:
    """The processes whose environment holds the mark."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes():
                found.append(f"{place.name}: {(place / 'cmdline').read_text()[:80]}")
        except OSError:
            continue
    return found


def stop(
    here: Path, words: list[str], sent: signal.Signals, *, group: bool, ready: Callable[[int], bool]
) -> tuple[int, str, str]:
    """Start a command, send a signal when it is ready, and give its exit code and what it wrote."""
    mark = f"CF2_TEST_SLOW={here}"
    process = subprocess.Popen(
        [sys.executable, "-m", "cf2", *words],
        cwd=here,
        env={**os.environ, "CF2_TEST_SLOW": str(here)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: ready(process.pid) or process.poll() is not None, "the work")
        assert process.poll() is None, process.communicate()
        (os.killpg if group else os.kill)(process.pid, sent)
        stdout, stderr = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    wait_until(lambda: not descendants(mark), "the end of the workers")
    return process.returncode, stdout, stderr


def works(here: Path, engine: str) -> Callable[[int], bool]:
    """Whether the model runs where the engine runs it."""

    def ready(pid: int) -> bool:
        running = {int(path.name.removeprefix("runs-")) for path in here.glob("runs-*")}
        return pid in running if engine == "local" else bool(running - {pid})

    return ready


slow = pytest.mark.slow
INT, TERM = signal.SIGINT, signal.SIGTERM


in_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are looked up in /proc")
QUICK = (("local", INT, True), ("processes", TERM, False))  # one of each engine, signal and receiver
STOPS = [
    pytest.param(*case, marks=() if case in QUICK else slow)
    for case in product(("local", "processes", "ray"), (INT, TERM), (True, False))
]


@in_proc
@pytest.mark.parametrize(("engine", "sent", "group"), STOPS)
def test_a_stopped_run_says_what_is_kept_and_goes_on(
    tmp_path: Path, engine: str, sent: signal.Signals, group: bool
) -> None:
    module = f"slow_{engine}_{sent.name}_{group}"  # a name that no other test imports
    (tmp_path / f"{module}.py").write_text(SLOW)
    words = ["explain", "--data", f"{module}:make", *WORDS, "--engine", engine]
    code, stdout, stderr = stop(tmp_path, words, sent, group=group, ready=works(tmp_path, engine))
    said = " ".join(stderr.split())
    assert code == 128 + sent, stderr
    assert "Traceback" not in stderr
    assert not stdout
    assert "of 20 are finished and stored in run. Run the same command with --resume to continue." in said
    (row,) = cf2(*words, "--resume", "--engine", "local", "--json", cwd=tmp_path).json["rows"]
    assert row["n"] == 20


@slow
@in_proc
@pytest.mark.parametrize(("sent", "group"), [(INT, True), (INT, False), (TERM, False)])
@pytest.mark.parametrize("command", ["explain", "train"])
def test_a_stop_at_any_other_time_is_as_quiet(tmp_path: Path, command: str, sent: signal.Signals, group: bool) -> None:
    """While workers start, and while a model is trained, of which nothing is saved."""
    (tmp_path / "slow_start.py").write_text(SLOW)
    words = {
        "explain": ["explain", "--data", "slow_start:make", *WORDS, "--engine", "processes"],
        "train": ["train", "ba-2motifs", "--epochs", "100000", "--out", "model"],
    }[command]
    starting = lambda pid: len(descendants(f"CF2_TEST_SLOW={tmp_path}")) > 2  # noqa: E731
    ready = starting if command == "explain" else lambda pid: cpu_seconds(pid) > 6
    code, stdout, stderr = stop(tmp_path, words, sent, group=group, ready=ready)
    assert code == 128 + sent, stderr
    assert "Stopped." in stderr
    assert "Traceback" not in stderr
    assert not stdout
    assert not list(tmp_path.glob("model*"))


def cpu_seconds(pid: int) -> float:
    """How long a process has computed: after some seconds it is past its imports."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- in this process: what each command says --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "patched", "says"),
    [
        (["train", "tree-cycles", "--out", "m"], "cf2.samples.training.train", "Nothing was saved"),
        (["demo", "--out", "d"], "cf2.samples.sources.from_dataset", "The report is written at the end"),
        (["bench"], "cf2.samples.from_clone", "Nothing was saved"),
        (["reproduce", "--out", "r"], "cf2.runs.engines.check", "stored in r. Run the same command with --resume"),
        (["methods"], "cf2.methods.registry.names", "Stopped."),
        (
            ["explain", "tree-cycles", "--out", "x"],
            "cf2.runs.comparison.explain",
            "Nothing has finished yet. Run the same",
        ),
    ],
)
@pytest.mark.parametrize("sent", [INT, TERM])
def test_every_command_says_what_holds_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], patched: str, says: str, sent: signal.Signals
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), sent)
        time.sleep(PATIENCE)

    monkeypatch.setattr(patched, interrupted)
    before = signal.getsignal(signal.SIGTERM)
    done = cf2(*words, cwd=tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before
    assert done.returncode == 128 + sent
    assert says in done.said
    assert done.said.startswith("Stopped.")
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_run_that_has_begun_counts_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cf2.runs import engines

    true = engines.explain_run

    def second_job_is_stopped(run: object, job: object = None, **options: object) -> None:
        if getattr(job, "method", "") == "random":
            raise KeyboardInterrupt
        true(run, job, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("cf2.runs.engines.explain_run", second_job_is_stopped)
    methods = ["--method", "gradient", "--method", "random", "--set", "k=2", "--seed", "0"]
    words = ["explain", "tree-cycles", "--nodes", "511-513", *methods, "--out", "run"]
    done = cf2(*words, cwd=tmp_path)
    assert done.returncode == 130
    assert "3 of 6 are finished and stored in run" in done.said
    monkeypatch.undo()
    rows = cf2(*words, "--resume", "--json", cwd=tmp_path).json["rows"]
    assert [row["n"] for row in rows] == [3, 3]
