"""How time and memory grow with the graph, the number of instances, the hidden size, the units.

Every point is measured in a fresh process, so that its peak memory is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from bench import SHARE, cut_seconds, worker_seconds
from bench.graphs import big_request, block, copies, request_of
from bench.timing import cpu, in_fresh_process, per_explanation
from cf2.graphs.graph import Graph
from cf2.runs import engines
from cf2.runs.session import Session
from cf2.units.kinds import units_of


@dataclass(frozen=True)
class Curve:
    """Rows of figures under column names; the first column is what was varied."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    note: str


def graph_size(sizes: Sequence[int] = (1, 10, 100)) -> Curve:
    """Blocks of 10⁴ nodes and 10⁵ directed edges; always the same 32 nodes are explained."""
    rows = []
    for count in sizes:
        (edges, cut, seconds, size), peak = in_fresh_process(_graph_point, count)
        rows.append((edges, 1e6 * cut, 1e3 * seconds, size, peak))
    columns = ("directed edges", "cut, µs", "verified explanation, ms", "graph, MiB", "peak, MiB")
    note = "The same 32 nodes in ever larger graphs: a cut and an explanation cost what they contain."
    return Curve("graph-size", "Size of the graph", columns, tuple(rows), note)


def _graph_point(count: int) -> tuple[int, float, float, float]:
    if count:
        request, nodes = big_request(count)
    else:  # a tenth of a block
        graph, places = copies(1, 1_000)
        request, nodes = request_of(graph), places.tolist()
    graph = request.targets.graph
    assert graph is not None
    keys = nodes[:: len(nodes) // 32][:32]
    cut, seconds = cut_seconds(request, nodes[::20]), per_explanation(request, keys)
    tensors = [graph.x, graph.edge_index, *map(torch.from_numpy, graph.index("in"))]
    return graph.edge_index.size(1), cut, seconds, sum(t.nbytes for t in tensors) / (1 << 20)


def instances(counts: Sequence[int] = (10, 100, 1_000, 10_000, 100_000)) -> Curve:
    """Streaming: results leave as they come, so memory does not grow with the number of instances."""
    rows = []
    for count in counts:
        seconds, peak = in_fresh_process(_instances_point, count)
        rows.append((count, seconds, 1e3 * seconds / count, peak))
    columns = ("instances", "CPU seconds", "ms each", "peak, MiB")
    note = "`explain_many(…, on_chunk=…)` on a random graph of 10⁵ edges, instances of some 20 units, 5 epochs."
    return Curve("instances", "Number of instances", columns, tuple(rows), note)


def _instances_point(count: int) -> float:
    edge_index = torch.from_numpy(block(nodes=25_000, degree=4))
    data = Data(x=torch.ones(25_000, 10), edge_index=edge_index)
    request = request_of(Graph(data, directed=False), "cf2-relaxed", epochs=5)
    keys = (number * 7 % 25_000 for number in range(count))
    return cpu(lambda: engines.explain_many(request, keys, on_chunk=lambda number, found: None))


def hidden_size(sizes: Sequence[int] = (8, 16, 32, 64, 128, 256)) -> Curve:
    """One instance's cost against the width of the model."""
    rows = []
    for hidden in sizes:
        seconds, peak = in_fresh_process(_hidden_point, hidden)
        rows.append((hidden, 1e3 * seconds, peak))
    columns = ("hidden size", "ms an explanation", "peak, MiB")
    note = "32 nodes of the random graph of 10⁵ edges (some 110 nodes each), relaxed, 50 epochs."
    return Curve("hidden-size", "Hidden size", columns, tuple(rows), note)


def _hidden_point(hidden: int) -> float:
    graph, places = copies(1)
    return per_explanation(request_of(graph, "cf2-relaxed", hidden, epochs=50), places[:32].tolist())


def units(degrees: Sequence[int] = (4, 8, 16, 32, 64, 102)) -> Curve:
    """One instance's cost against the number of its units."""
    rows = []
    for degree in degrees:
        (count, relaxed, verified), peak = in_fresh_process(_units_point, degree)
        rows.append((count, 1e3 * relaxed, 1e3 * verified, peak))
    columns = ("units", "relaxed, 50 epochs, ms", "verified, ms", "peak, MiB")
    note = "8 nodes of random graphs of growing degree; two hops; an untrained model."
    return Curve("units", "Units of an instance", columns, tuple(rows), note)


def _units_point(degree: int) -> tuple[float, float, float]:
    edge_index = torch.from_numpy(block(nodes=20_000, degree=degree))
    graph = Graph(Data(x=torch.ones(20_000, 10), edge_index=edge_index), directed=False)
    keys = list(range(0, 16_000, 2_000))
    relaxed = request_of(graph, "cf2-relaxed", epochs=50)
    with Session(relaxed) as session:
        count = sum(units_of(i, session.kinds).count for i in session.field.instances(keys)) / len(keys)
    return count, per_explanation(relaxed, keys), per_explanation(request_of(graph), keys)


def workers(counts: Sequence[int] = (1, 2), number: int = 2_000) -> Curve:
    """Wall clock by engine and number of workers."""
    tables = {engine: worker_seconds(number, counts, engine, times=2) for engine in ("processes", "ray")}
    rows = tuple(
        (count, *(value for table in tables.values() for value in (table[count], table[counts[0]] / table[count])))
        for count in counts
    )
    columns = ("workers", "processes, s", "times one", "ray, s", "times one")
    note = (
        f"{number:,} BA-Shapes instances in chunks of {SHARE}, relaxed, 30 epochs, on the wall clock of "
        f"{engines.cores()} cores; the better of two runs. Starting the processes is included; the Ray cluster runs "
        "already, with the model loaded."
    )
    return Curve("workers", "Workers", columns, rows, note)


CURVES: dict[str, Callable[[], Curve]] = {
    "graph-size": lambda: graph_size((0, 1, 10, 100)),
    "instances": instances,
    "hidden-size": hidden_size,
    "units": units,
    "workers": workers,
}
