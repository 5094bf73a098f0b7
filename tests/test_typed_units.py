"""Every task × output × kind of unit of a typed graph: verdicts are true of the *full* HeteroData.

Units are taken out of the whole graph by hand, from their flat ids; nothing here shares code with the package.
"""

from __future__ import annotations

from typing import Any

import pytest
from torch_geometric.data import HeteroData

import cf2
from test_typed import ASKED, OUTPUTS, same, says, without_pair
from typed_toys import BACK, KNOWS, LIKES, graph, kept, model

UNITS = ["edges", "features", "node_features", "columns", "nodes", "edges,node_features", "edges,columns"]


def without(data: HeteroData, e: cf2.Explanation, gone: Any) -> HeteroData:
    """The graph without what the units of a mask stand for."""
    start, total = {}, 0
    for name in data.node_types:
        start[name], total = total, total + data[name].num_nodes
    owner = [name for name in data.node_types for _ in range(data[name].num_nodes)]
    made = data.clone()
    edges: dict[Any, list[tuple[int, int]]] = {}
    for place in gone.nonzero()[0].tolist():
        kind, (first, second) = e.units.names[e.units.kind[place]], e.units.ids[place].tolist()
        type_of = int(e.units.types[place])
        if kind == "edges":
            src, rel, dst = data.edge_types[type_of]
            u, v = first - start[src], second - start[dst]
            edges.setdefault((src, rel, dst), []).append((u, v))
            if (src, rel, dst) == LIKES:
                edges.setdefault(BACK, []).append((v, u))
            if (src, rel, dst) == KNOWS:
                edges[KNOWS].append((v, u))
        elif kind == "columns":
            made[data.node_types[type_of]].x[:, second] = 0
        else:
            name = owner[first]
            node = first - start[name]
            made[name].x[node, second if kind == "features" else slice(None)] = 0
            for src, rel, dst in data.edge_types if kind == "nodes" else ():
                pairs = data[src, rel, dst].edge_index.t().tolist()
                at = [(u, v) for u, v in pairs if (src, u) == (name, node) or (dst, v) == (name, node)]
                edges.setdefault((src, rel, dst), []).extend(at)
    return kept(made, edges, inside=False)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("level", ASKED)
def test_verdicts_are_true_of_the_full_graph(level: str, output: str, units: str) -> None:
    width, asked = OUTPUTS[output]
    data, net = graph(1), model("graph", width, 1)
    found = cf2.explain(net, data, **ASKED[level][0], **asked, units=units, effort="quick", epochs=2)
    compared = 0
    for e in found:
        whole = without_pair(data, *e.key) if level == "pair" else data
        row = says(net, whole, level, e.key)
        for gone, verdict in ((~e.selected, e.sufficient), (e.selected, not e.necessary)):
            true = same(output, row, says(net, without(whole, e, gone), level, e.key))
            assert true is None or true == verdict, (e.key, gone)
            compared += true is not None
    assert compared


@pytest.mark.parametrize("units", UNITS)
def test_sets_that_pass_are_found_for_every_kind_of_unit(units: str) -> None:
    """The brute force above compares something."""
    found = [
        e
        for seed in range(3)
        for e in cf2.explain(
            model("graph", 3, seed), graph(seed), range(5), node_type="user", units=units, effort="quick"
        )
    ]
    assert any(e.status == "found" and e.size for e in found)
