"""Edits of typed graphs: every claim compared with the whole graph, rebuilt by code that shares nothing with cf2."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import HeteroData

import cf2
from typed_toys import BACK, HAS, KNOWS, LIKES, SEES, graph, model, says

MIRROR = {LIKES: BACK, BACK: LIKES, KNOWS: KNOWS}


def coloured(seed: int) -> HeteroData:
    """The toy graph; users have a colour of three and a number, items two switches, tags numbers."""
    data, stream = graph(seed), torch.Generator().manual_seed(seed)
    data["user"].x = torch.eye(4)[torch.randint(0, 3, (5,), generator=stream)]
    data["user"].x[:3, :3] = torch.eye(3)  # every colour occurs
    data["user"].x[:, 3] = torch.linspace(-1, 1, 5)
    data["item"].x = torch.tensor([[0.0, 1], [1, 1], [1, 0], [0, 0]])
    return data


def rebuilt(data: HeteroData, edits: list[tuple[Any, ...]]) -> HeteroData:
    """A copy with edits made one by one, mirror images with them."""
    made = data.clone()
    for sort, place, *more in edits:
        kind = more[-1]
        if sort == "change":
            made[kind].x[place[0], place[1]] = more[1]
            continue
        for one, ends in [(kind, place)] + ([(MIRROR[kind], place[::-1])] if kind in MIRROR else []):
            pairs = [tuple(pair) for pair in made[one].edge_index.t().tolist()]
            assert (tuple(ends) in pairs) == (sort == "remove")
            pairs = [pair for pair in pairs if pair != tuple(ends)] if sort == "remove" else [*pairs, tuple(ends)]
            made[one].edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    return made


def answer(net: nn.Module, data: HeteroData, level: str) -> int:
    return int(says(net, data, level, 0).argmax())


def one_unit(e: cf2.Explanation, row: int) -> list[tuple[Any, ...]]:
    """What one unit of an explanation does, by its row in the table of units."""
    types, name = e.types, e.units.names[e.units.kind[row]]
    assert types is not None
    starts = dict(zip(types.nodes, types.starts))

    def local(node: int) -> tuple[str, int]:
        kind = max((start, name) for name, start in starts.items() if start <= node)[1]
        return kind, node - starts[kind]

    one, other = e.units.ids[row].tolist()
    if name in ("edges", "added_edges"):
        sort = "remove" if name == "edges" else "add"
        return [(sort, (local(one)[1], local(other)[1]), types.edges[e.units.types[row]])]
    source, old, new = e.units.values[row].tolist()
    kind, node = local(one)
    made: list[tuple[Any, ...]] = [("change", (node, other), old, new, kind)]
    return made + ([("change", (node, int(source)), 1.0, 0.0, kind)] if source >= 0 else [])


def explained(net: nn.Module, data: HeteroData, level: str, **options: Any) -> cf2.Explanation:
    where: dict[str, Any] = {"nodes": [0], "node_type": "user"} if level == "node" else {"level": "graph"}
    (e,) = cf2.explain(net, data, question="counterfactual", **where, **options)
    return e


SORTS = [("add",), ("change",), ("remove", "add"), ("remove", "add", "change")]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_claim_is_true_of_the_whole_typed_graph(draw: Any) -> None:
    seed, sorts = draw.draw(st.integers(0, 10**4)), draw.draw(st.sampled_from(SORTS))
    level, kind = draw.draw(st.sampled_from(["node", "graph"])), draw.draw(st.sampled_from(["sage", "graph", "gat"]))
    data, net = coloured(seed), model(kind, seed=seed)
    options = {"candidates": draw.draw(st.sampled_from(["near", "target", "far", None]))} if level == "node" else {}
    e = explained(net, data, level, edits=sorts, **options)
    assert e.prediction == answer(net, data, level)
    if e.status == "empty":
        return
    made = rebuilt(data, e.edits)
    assert e.necessary == (answer(net, made, level) != e.prediction)
    assert (e.status == "found") == e.necessary
    applied = e.apply(data)
    for name in data.node_types:
        assert torch.equal(applied[name].x, made[name].x)
    for name in data.edge_types:
        assert set(zip(*applied[name].edge_index.tolist())) == set(zip(*made[name].edge_index.tolist()))
    chosen = [row for row, inside in enumerate(e.selected.tolist()) if inside]
    assert sorted(map(str, e.edits)) == sorted(str(edit) for row in chosen for edit in one_unit(e, row))
    if e.status == "found":
        for left_out in chosen:
            rest = [edit for row in chosen if row != left_out for edit in one_unit(e, row)]
            assert answer(net, rebuilt(data, rest), level) == e.prediction
    proved = e.size if e.optimal else int(e.lower_bound or 0)
    for count in range(min(proved, 2 if e.num_units > 60 else 3)):
        for rows in combinations(range(e.num_units), count):
            edits = [edit for row in rows for edit in one_unit(e, row)]
            places = [(edit[1], edit[-1]) for edit in edits if edit[0] == "change"]
            if len(set(places)) == len(places):
                assert answer(net, rebuilt(data, edits), level) == e.prediction


def test_candidates_are_the_absent_pairs_of_every_known_type() -> None:
    data = coloured(1)
    e = explained(model("sage"), data, "graph", edits="add")
    found = [one_unit(e, row)[0] for row in range(e.num_units)]
    assert len(set(found)) == len(found)
    counts = {"user": 5, "item": 4, "tag": 3}
    for kind in (LIKES, SEES, HAS, KNOWS):
        there = {tuple(pair) for pair in data[kind].edge_index.t().tolist()}
        every = {(u, v) for u in range(counts[kind[0]]) for v in range(counts[kind[2]])} - there
        if kind == KNOWS:
            every = {(u, v) for u, v in every if u < v}
        assert {edit[1] for edit in found if edit[2] == kind} == every
    assert not [edit for edit in found if edit[2] == BACK], "a mirror image is no edit of its own"


def test_candidates_at_the_target_join_it() -> None:
    data = coloured(1)
    for given_candidates in ("target", "far"):
        e = explained(model("sage"), data, "node", edits="add", candidates=given_candidates)
        for row in range(e.num_units):
            (_, ends, kind), *_ = one_unit(e, row)
            assert (kind[0], ends[0]) == ("user", 0) or (kind[2], ends[1]) == ("user", 0)


def test_an_atom_of_a_type_changes_within_its_type() -> None:
    e = explained(model("sage"), coloured(1), "graph", edits="change")
    columns: dict[str, set[int]] = {}
    for row in range(e.num_units):
        for _, (_, column), old, new, kind in one_unit(e, row):
            columns.setdefault(kind, set()).add(column)
            assert old != new
            if kind == "item":
                assert {old, new} == {0.0, 1.0}
    assert columns["user"] == {0, 1, 2, 3}
    assert columns["item"] == {0, 1}
    assert columns["tag"] == {0, 1, 2}


def test_added_edges_have_the_commonest_attribute_of_their_type() -> None:
    from cf2.graphs.targets import GraphTargets
    from cf2.options import Spec
    from cf2.units.edits import Editing

    data = coloured(0)
    data[LIKES].edge_attr = torch.tensor([[2.0], [2.0], [1.0], [2.0], [1.0], [2.0]])
    data[SEES].edge_attr = torch.tensor([[7.0], [7.0]])
    targets = GraphTargets([data])
    editing = Editing.of(Spec(question="counterfactual", edits=("add",)), targets)
    assert editing is not None
    made = editing.prepared(targets.instance(0), lambda nodes: targets.instance(0))
    assert made.types is not None
    assert made.role is not None
    new = made.role == 1
    kinds, rows = made.extras["edge_type"][1][new], made.extras["edge_attr"][1][new]
    for place, kind in enumerate(made.types.edges):
        expected = {LIKES: 2.0, SEES: 7.0}.get(kind, 0.0)
        assert (rows[kinds == place] == expected).all()
        assert bool((kinds == place).any())


def test_words_files_and_mistakes(tmp_path: Path) -> None:
    data, net = coloured(2), model("sage", seed=2)
    found = cf2.explain(
        net, data, nodes=range(5), node_type="user", question="counterfactual", edits=("remove", "add", "change")
    )
    found.save(tmp_path / "found.json")
    loaded = cf2.load(tmp_path / "found.json")
    assert [e.edits for e in loaded] == [e.edits for e in found]
    for e in found:
        assert e.summary()
        assert e.by_type()
        e.plot()
    found.report(tmp_path / "page.html")
    with pytest.raises(cf2.CF2Error, match="pairs without a type"):
        explained(net, data, "node", edits="add", candidates=[(0, 1)])
    with pytest.raises(cf2.CF2Error, match="columns without a type"):
        explained(net, data, "node", edits="change", one_hot=[(0, 1, 2)])
    with pytest.raises(cf2.CF2Error, match="HeteroData"):
        found[0].apply(torch.zeros(3))
