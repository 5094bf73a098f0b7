"""Every engine gives the same explanations, whatever dies on the way; and says what is wrong."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import cf2
from cf2.errors import CF2Error
from cf2.graphs.graph import Graph
from cf2.graphs.targets import GraphTargets, NodeTargets
from cf2.methods import registry
from cf2.options import Spec
from cf2.results.explanation import Explanation
from cf2.runs import engines
from cf2.runs.engines import cluster, machine
from cf2.runs.engines.machine import Outcome
from cf2.runs.session import Chunk, Measured, Request, Session
from cf2.samples.models import build
from cf2.samples.sources import from_function
from toys import same_results

MODULE = '''
import os, signal
from pathlib import Path
import torch
from torch_geometric.data import Data
from cf2.samples.models import build

HERE = Path(__file__).parent

class Fragile(torch.nn.Module):
    """A GCN whose process dies at the next pass after `die` appears, and always at a feature over 100."""

    def __init__(self, task):
        super().__init__()
        self.gnn = build("gcn", task=task, num_features=4, num_classes=3, hidden=8, layers=2)
        self.driver = os.getpid()

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        if os.getpid() != self.driver:
            if float(x.max()) > 100 and len(x) < 40:  # in a receptive field, not in the whole graph
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                (HERE / "die").unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            except FileNotFoundError:
                pass
        extra = () if batch is None else (batch,)
        out = self.gnn(x, edge_index, edge_weight, *extra)
        return out + float("nan") if float(x.min()) < -100 and len(x) < 40 else out

def ring(n=60, special=None):
    at = torch.arange(n)
    ahead = torch.stack([at, (at + 1) % n])
    x = torch.eye(4)[at % 4]
    if special:
        x[n // 2, 0] = special
    return Data(x=x, edge_index=torch.cat([ahead, ahead.flip(0)], 1), y=at % 3)

def nodes(special=None):
    torch.manual_seed(0)
    return Fragile("node"), ring(special=special)

def deadly(): return nodes(1000.0)
def invalid(): return nodes(-1000.0)

def graphs():
    torch.manual_seed(0)
    model = Fragile("graph")
    out = [ring(n) for n in range(4, 24)]
    for graph in out:
        graph.y = torch.tensor([0])
    return model, out
'''
KEYS = list(range(0, 60, 3))
SPEC = Spec("cf2-relaxed", settings={"epochs": 8})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("engines")
    (place / "fragile_models.py").write_text(MODULE)
    before = os.getcwd()
    os.chdir(place)
    yield place
    os.chdir(before)
    sys.modules.pop("fragile_models", None)


@pytest.fixture(scope="module")
def ray_here(directory: Path) -> Iterator[None]:
    """One Ray for all tests of this file; an engine that finds one uses it."""
    pytest.importorskip("ray")
    with engines.ready("ray", workers=2):
        yield


@pytest.fixture
def engine(request: pytest.FixtureRequest, directory: Path) -> str:
    if request.param == "ray":
        request.getfixturevalue("ray_here")
    return str(request.param)


remote = pytest.mark.parametrize("engine", ["processes", "ray"], indirect=True)


def request_of(function: str, keys: list[int] = KEYS, spec: Spec = SPEC) -> Request:
    return from_function(f"fragile_models:{function}").request(keys, spec)


def run(request: Request, engine: str = "local", keys: Any = KEYS, **options: Any) -> list[Explanation]:
    return engines.explain_many(request, keys, engine=engine, workers=2, chunk_size=3, **options)


@remote
@pytest.mark.parametrize(("function", "keys"), [("nodes", KEYS), ("graphs", list(range(20)))])
def test_every_engine_gives_the_same(engine: str, function: str, keys: list[int]) -> None:
    request = request_of(function, keys)
    found = run(request, engine, keys)
    assert [e.key for e in found] == keys
    assert same_results(found, run(request, keys=keys))


@pytest.mark.parametrize(
    ("engine", "workers", "size", "ahead"), [("processes", 2, 20, 4 * 20), ("ray", 1, 5, 5)], indirect=["engine"]
)
def test_keys_are_read_as_the_work_proceeds(engine: str, workers: int, size: int, ahead: int) -> None:
    """At most the keys by which the model is measured, and what the workers may have, are ahead."""
    read, done, most = [0], [0], [0]

    def keys() -> Iterator[int]:
        for key in range(500):
            read[0] += 1
            yield key % 60

    def keep(number: int, part: list[Explanation]) -> None:
        most[0] = max(most[0], read[0] - done[0])
        done[0] += len(part)

    request = request_of("nodes", list(range(60)))
    engines.explain_many(request, keys(), engine=engine, workers=workers, chunk_size=size, on_chunk=keep)
    assert done[0] == 500
    assert most[0] <= 64 + ahead


@remote
def test_parts_stream_and_a_killed_worker_repeats_none_of_them(engine: str, directory: Path) -> None:
    """Each instance that is too large is a part of its own; a worker dies in the middle of a chunk."""
    request = request_of("nodes", spec=replace(SPEC, max_units=1))
    parts: list[list[Explanation]] = []
    ends: list[int] = []

    def keep(outcome: Outcome) -> None:
        if not parts:
            (directory / "die").touch()
        parts.append(outcome.found) if outcome.found else None
        ends.append(outcome.chunk.number) if outcome.ended else None

    chunks = [Chunk(0, KEYS[:10]), Chunk(1, KEYS[10:], frozenset(KEYS[15:]))]
    engines.explain_chunks(request, chunks, KEYS, engine=engine, workers=2, keep=keep)
    assert not (directory / "die").exists()
    assert sorted(ends) == [0, 1]
    assert sorted(e.key for part in parts for e in part) == KEYS[:15]  # type: ignore[type-var]
    assert len(parts) == 15
    by_key = {e.key: e for part in parts for e in part}
    assert same_results([by_key[key] for key in KEYS[:15]], run(request)[:15])


@remote
def test_a_chunk_that_kills_every_worker_is_reported_and_the_rest_is_done(engine: str) -> None:
    request = request_of("deadly")
    done: list[int] = []
    with pytest.raises(engines.ChunksFailed) as error:
        run(request, engine, on_chunk=lambda number, part: done.append(number), retries=1)
    near = {number for number, at in enumerate(range(0, 20, 3)) if any(abs(k - 30) < 4 for k in KEYS[at : at + 3])}
    assert {outcome.chunk.number for outcome in error.value.failed} == near
    assert sorted([*done, *near]) == list(range(7))
    assert "2 times" in str(error.value)
    assert "keys 27, 30, 33" in str(error.value)


def test_a_key_that_comes_twice_is_answered_each_time(directory: Path) -> None:
    assert [e.key for e in engines.explain_many(request_of("nodes"), [0, 0, 3])] == [0, 0, 3]


def test_a_chunk_that_fails_by_itself_is_reported_and_the_rest_is_done(directory: Path) -> None:
    done: list[int] = []
    request = request_of("invalid")
    far = 5 * [k for k in KEYS if abs(k - 30) > 6]
    with pytest.raises(CF2Error, match=r"1 failed chunks of 1 keys.*\n.*key 30.*NaN"):
        engines.explain_many(request, [*far, 30], chunk_size=len(far) // 5, on_chunk=lambda n, part: done.append(n))
    assert done == list(range(5))


def test_nobody_goes_on_when_nothing_succeeds(directory: Path, failing: Spec) -> None:
    started: list[int] = []

    def keys() -> Iterator[int]:
        for key in range(1000):
            started.append(key)
            yield key % 20

    with pytest.raises(engines.ChunksFailed, match="ZeroDivisionError: as it always does") as error:
        engines.explain_many(request_of("graphs", [0], failing), keys(), chunk_size=2)
    assert "stopped there" in str(error.value)
    assert len(started) < 100


def test_the_callers_model_and_tensors_stay_where_they_are(directory: Path) -> None:
    source = from_function("fragile_models:nodes")
    data = source.graphs[0]
    view = data.x.numpy()
    before = (data.x.data_ptr(), data.edge_index.data_ptr(), source.model.training, view.copy())
    run(source.request(KEYS, SPEC), "processes")
    assert (data.x.data_ptr(), data.edge_index.data_ptr(), source.model.training) == before[:3]
    assert np.array_equal(view, before[3])
    assert all(p.grad is None and not p.is_shared() for p in source.model.parameters())


def test_a_big_graph_is_sent_as_shared_arrays() -> None:
    count = 20_000
    tail = torch.randint(count, (5 * count,), generator=torch.Generator().manual_seed(0))
    edge_index = torch.stack([torch.cat([tail, tail.roll(1)]), torch.cat([tail.roll(1), tail])])
    model = build("gcn", task="node", num_features=8, num_classes=3, hidden=8, layers=2)
    graph = Graph(Data(x=torch.ones(count, 8), edge_index=edge_index))
    request = Request(model, NodeTargets(graph), SPEC)
    with Session(request) as session:
        request = session.measure([0, 1])
    message, buffers = machine.serialise(request)
    assert len(message) < 0.02 * sum(buffer.nbytes for buffer in buffers)
    again = machine.deserialise(message, buffers)
    assert again.targets.graph is not None
    assert torch.equal(again.targets.graph.edge_index, graph.edge_index)
    assert again.targets.graph.x.data_ptr() == graph.x.data_ptr()
    assert again.measured is not None
    assert again.measured.reach.full is not None


def test_slices_of_one_tensor_are_sent_as_what_they_show() -> None:
    """As the graphs of a torch_geometric data set are, which all lie in the same few tensors."""
    x, edges = torch.rand(400 * 5, 3), torch.tensor([[0, 1], [1, 0]]).repeat(1, 400)
    graphs = [Data(x=x[5 * i : 5 * i + 5], edge_index=edges[:, 2 * i : 2 * i + 2]) for i in range(400)]
    model = build("gcn", task="graph", num_features=3, num_classes=2, hidden=4, layers=2)
    message, _ = machine.serialise(Request(model, GraphTargets(graphs), SPEC))
    assert len(message) < 20 * (x.nbytes + edges.nbytes)
    again = machine.deserialise(message, [])
    assert all(torch.equal(a.x, b.x) for a, b in zip(again.targets.graphs, graphs, strict=True))


@pytest.mark.parametrize("named", [True, False])
def test_buffers_are_shared_by_memory_or_where_there_is_none_by_a_file(
    monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    if not named:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    contents = [bytes(range(200)), b"five", b"", b"end"]
    shared = machine.SharedBuffers([memoryview(content) for content in contents])
    with shared.file:
        handle = SimpleNamespace(detach=lambda: os.dup(shared.file.fileno()))  # as a process gets it that starts
        assert [bytes(buffer) for buffer in machine._attach(handle, shared.places)] == contents
        assert all(place.start % 64 == 0 for place in shared.places)


def test_a_model_that_cannot_be_sent_is_said() -> None:
    class Hidden(GCNConv):
        """Not at the top level of a module."""

    data = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    request = Request(Hidden(1, 2), NodeTargets(Graph(data)), SPEC)
    with pytest.raises(CF2Error, match="can be sent to another process"):
        engines.explain_many(request, [0], engine="processes", workers=1)


def test_a_model_that_a_worker_cannot_load_is_said(directory: Path, tmp_path: Path) -> None:
    request = request_of("nodes")
    os.chdir(tmp_path)
    try:
        with pytest.raises(CF2Error, match=r"load the model, but got ModuleNotFoundError.*fragile_models"):
            run(request, "processes")
    finally:
        os.chdir(directory)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "rey"}, "'ray'"),
        ({"workers": 0}, "`workers`"),
        ({"chunk_size": 0}, "`chunk_size`"),
        ({"keys": [0, 60]}, "0 to 59"),
    ],
)
def test_bad_options_are_refused(directory: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(CF2Error, match=says):
        engines.explain_many(request_of("nodes"), **{"keys": KEYS, **options})


def test_a_script_without_a_main_guard_is_told_so(directory: Path) -> None:
    script = directory / "unguarded.py"
    script.write_text(
        "from cf2.samples.sources import from_function\n"
        "from cf2.runs import engines\n"
        "from cf2.options import Spec\n"
        "request = from_function('fragile_models:nodes').request([0], Spec('gradient', settings={'k': 2}))\n"
        "engines.explain_many(request, [0, 3], engine='processes', workers=1)\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert 'under `if __name__ == "__main__":`' in last
    assert "Put the call under that line" in last


def test_ray_that_is_not_installed_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CF2Error, match=r"pip install .*\[ray\]'"):
        run(request_of("nodes"), "ray")


class BusyRay:
    """Ray on a machine whose cores are all busy: it gives up in its own time, twice."""

    def __init__(self, error: Exception) -> None:
        self.errors, self.running = [error, error], False
        self.waits: list[int] = []

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **_: Any) -> None:
        self.waits = [int(os.environ[name]) for name in cluster.RAY_LIMITS if name in os.environ]
        if self.errors:
            raise self.errors.pop()
        self.running = True

    def shutdown(self) -> None:
        self.running = False


@pytest.mark.parametrize("error", [Exception("The current node timed out during startup."), TimeoutError("late")])
def test_ray_that_starts_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    busy: Any = BusyRay(error)
    monkeypatch.setitem(sys.modules, "ray", busy)
    with cluster.connected() as ray:
        assert ray.is_initialized()
    assert not busy.running
    assert busy.waits == [3600, 3600, 3600, 3_600_000]
    assert not any(name in os.environ for name in cluster.RAY_LIMITS)
    monkeypatch.setenv(cluster.START_SECONDS, "0")
    busy.errors = [error]
    with pytest.raises(CF2Error, match="Expected to start Ray on this machine"), cluster.connected():
        pass
    monkeypatch.setenv(cluster.START_SECONDS, "soon")
    with pytest.raises(CF2Error, match="CF2_RAY_SECONDS to be a number"), cluster.connected():
        pass


def test_a_cluster_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", BusyRay(ConnectionError("timed out")))
    for address in ("127.0.0.1:1", "127.0.0.1:99999", "auto", "ray://nowhere:1"):
        with pytest.raises(CF2Error, match=f"Expected a Ray cluster at '{address}'"), cluster.connected(address):
            pass


def test_engines_do_not_import_ray_until_asked() -> None:
    assert "ray" not in vars(importlib.import_module("cf2.runs.engines.cluster"))


# -- what a worker knows ----------------------------------------------------------------------------------------

OWN_METHOD = """
import torch
from dataclasses import dataclass
from cf2.methods.contract import Method, Ranking, choose
from cf2.methods.registry import register
from cf2.sets.search import Choice

@dataclass(frozen=True)
class Settings:
    k: int = 2

def rank(problem, settings):
    scores = torch.arange(problem.pack.units.count) % 5 + 0.0
    chosen = choose(scores, problem.pack, k=settings.k)
    return Ranking(scores, Choice(chosen, torch.zeros(problem.num_instances, dtype=torch.long)))

METHOD = Method("own-method", "my own", "every fifth unit", Settings, rank)
"""


@pytest.mark.parametrize("registers", [True, False], ids=["registers-itself", "is-registered-by-its-user"])
def test_a_users_own_method_works_in_other_processes(
    directory: Path, monkeypatch: pytest.MonkeyPatch, registers: bool
) -> None:
    name = f"own_method_{registers}".lower()
    (directory / f"{name}.py").write_text(OWN_METHOD + ("register(METHOD)\n" if registers else ""))
    monkeypatch.syspath_prepend(str(directory))
    module = importlib.import_module(name)
    try:
        cf2.register(module.METHOD)
        for spec in (Spec("own-method", settings={"k": 3}), Spec("own-method", search=True, settings={"proof": 9})):
            request = request_of("nodes", spec=spec)
            found = run(request, "processes")
            assert {e.method for e in found} == {"own-method"}
            assert same_results(found, run(request))
    finally:
        registry._METHODS.pop("own-method", None)


def test_workers_rely_on_what_was_measured_in_the_parent(directory: Path) -> None:
    plain = request_of("nodes")
    with Session(plain) as session:
        measured = session.measure(KEYS).measured
    assert measured is not None
    assert (measured.findings.output, measured.findings.reads_weights) == ("logits", True)
    # findings that no worker would come to by itself: had it looked again, it would not give what this process gives
    findings = replace(measured.findings, reads_weights=False)
    told = replace(plain, measured=Measured(findings, replace(measured.reach, full=None)))
    assert Session(machine.deserialise(*machine.serialise(told))).predictor.findings == findings
    found = run(told, "processes")
    assert same_results(found, run(told))
    assert not np.array_equal(np.concatenate([e.scores for e in found]), np.concatenate([e.scores for e in run(plain)]))


def test_cores_are_counted_where_a_system_cannot_tell_which_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert engines.cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert engines.cores() == 1
