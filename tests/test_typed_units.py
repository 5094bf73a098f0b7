"""Every task × output × kind of unit of a typed graph: verdicts are true of the *full* HeteroData.

Units are taken out of the whole graph by hand, from their flat ids; nothing here shares code with the package.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData

import cf2
from test_typed import ASKED, OUTPUTS, same, says, without_pair
from typed_toys import BACK, KNOWS, LIKES, graph, kept, model

UNITS = ["edges", "features", "node_features", "columns", "nodes", "edges,node_features", "edges,columns"]


def without(data: HeteroData, e: cf2.Explanation, gone: Any) -> tuple[HeteroData, Any]:
    """The graph without what the units of a mask stand for, and the key of the same target in it."""
    start, total = {}, 0
    for name in data.node_types:
        start[name], total = total, total + data[name].num_nodes
    owner = [name for name in data.node_types for _ in range(data[name].num_nodes)]
    made = data.clone()
    edges: dict[Any, list[tuple[int, int]]] = {}
    nodes: dict[str, list[int]] = {}
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
            if kind == "nodes":
                nodes.setdefault(name, []).append(node)
            else:
                made[name].x[node, second if kind == "features" else slice(None)] = 0
    made = kept(made, edges, inside=False)
    left = {name: [n for n in range(data[name].num_nodes) if n not in nodes.get(name, [])] for name in data.node_types}
    for name, places in left.items():
        made[name].x = made[name].x[places]
    for src, rel, dst in data.edge_types:
        pairs = made[src, rel, dst].edge_index.t().tolist()
        stay = [n for n, (u, v) in enumerate(pairs) if u in left[src] and v in left[dst]]
        moved = [[left[src].index(pairs[n][0]), left[dst].index(pairs[n][1])] for n in stay]
        made[src, rel, dst].edge_index = torch.tensor(moved, dtype=torch.long).reshape(-1, 2).t()
        if "edge_attr" in made[src, rel, dst]:
            made[src, rel, dst].edge_attr = made[src, rel, dst].edge_attr[stay]
    key = e.key
    if isinstance(key, tuple):
        key = (left[LIKES[0]].index(key[0]), left[LIKES[2]].index(key[1]))
    elif "user" in left and key in left["user"]:
        key = left["user"].index(key)
    return made, key


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
        for gone, verdict, claim in (
            (~e.selected, e.sufficient, e.sufficient),
            (e.selected, not e.necessary, e.necessary),
        ):
            part, key = without(whole, e, gone)
            if not sum(part[name].num_nodes for name in part.node_types):  # no graph: neither the same nor another
                assert not claim
                continue
            true = same(output, row, says(net, part, level, key))
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
