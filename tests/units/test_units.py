"""Units govern elements many to many: an element is there if every unit that governs it is."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import cf2
from cf2.errors import CF2Error
from cf2.graphs.targets import GraphTargets
from cf2.units import kinds as cf2_units
from cf2.units.kinds import InstanceUnits, Rows, UnitKind, Units, register_unit_kind, unit_kinds, units_of
from cf2.units.packs import pack
from toys import (
    WHOLE_NODES,
    GraphNet,
    NodeNet,
    Unit,
    edited,
    governs,
    governs_entry,
    passing,
    probabilities,
    random_graph,
)


def table_of(data: Data, *names: str, directed: bool | None = None) -> InstanceUnits:
    return units_of(GraphTargets([data], directed=directed).instance(0), unit_kinds(names))


# -- the kinds ----------------------------------------------------------------------------------------------


def test_units_tie_directions_and_duplicates_and_leave_loops_alone() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2, 0, 1, 2], [1, 0, 2, 1, 1, 0, 2]])
    table = table_of(Data(x=torch.ones(3, 1), edge_index=edge_index), "edges")
    assert table.ids.tolist() == [[0, 1], [1, 2]]
    assert table.edges[0].tolist() == [0, 0, 1, 1, 0, 0, -1]
    assert not table.edges[1].numel()


def test_directed_graphs_keep_directions_apart() -> None:
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1], [1, 0, 2]]))
    assert GraphTargets([data]).instance(0).directed
    assert table_of(data, "edges").ids.tolist() == [[0, 1], [1, 0], [1, 2]]
    assert table_of(data, "edges", directed=False).ids.tolist() == [[0, 1], [1, 2]]


def test_features_come_as_entries_as_nodes_and_as_columns() -> None:
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    data = Data(x=x, edge_index=torch.zeros(2, 0, dtype=torch.long))
    assert table_of(data, "features").ids.tolist() == [[0, 0], [0, 2], [2, 0]]
    assert table_of(data, "node_features").ids.tolist() == [[0, -1], [2, -1]]
    assert table_of(data, "columns").ids.tolist() == [[-1, 0], [-1, 2]]
    assert table_of(data, "columns").features[0].tolist() == [0, 1, 0]


KINDS = ["edges", "features", "columns,node_features", "edges,features", "whole_nodes", "edges,whole_nodes,columns"]


@pytest.mark.usefixtures("whole_nodes")
@pytest.mark.parametrize("kinds", KINDS)
def test_governors_are_what_the_brute_force_says(kinds: str) -> None:
    data, names = random_graph(6, 8, seed=2), kinds.split(",")
    table = table_of(data, *names)
    named = [(names[kind], tuple(ids)) for kind, ids in zip(table.kind.tolist(), table.ids.tolist())]
    assert len(set(named)) == table.count
    for column, (a, b) in enumerate(data.edge_index.t().tolist()):
        assert _governing(table.edges, column) == [u for u, unit in enumerate(named) if governs(unit, a, b)]  # type: ignore[arg-type]
    for place, (row, column) in enumerate(table.entries.tolist()):
        expected = [u for u, unit in enumerate(named) if governs_entry(unit, row, column)]  # type: ignore[arg-type]
        assert _governing(table.features, place) == expected
    assert ("whole_nodes" in names) == bool(table.edges[1].numel())  # elements with several


def _governing(governors: tuple[torch.Tensor, torch.Tensor], element: int) -> list[int]:
    first, further = governors
    more = further[1, further[0] == element].tolist()
    return sorted([*([int(first[element])] if first[element] >= 0 else []), *more])


def test_unknown_kinds_and_taken_names_are_refused() -> None:
    with pytest.raises(CF2Error, match="Did you mean 'features'"):
        unit_kinds(["feature"])
    with pytest.raises(CF2Error, match="'edges', which is taken"):
        register_unit_kind(UnitKind("edges", WHOLE_NODES.rows))
    assert "whole_nodes" not in cf2_units.KINDS


# -- hard and soft presence ---------------------------------------------------------------------------------


@st.composite
def many_to_many(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int]]]:
    elements, units = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    pairs = st.tuples(st.integers(0, elements - 1), st.integers(0, units - 1))
    return elements, units, draw(st.lists(pairs, unique=True, max_size=16))


def _units_of_pairs(elements: int, units: int, pairs: list[tuple[int, int]]) -> Units:
    """One graph of loops whose columns are governed as the pairs say, packed."""
    rows = Rows(
        torch.zeros(units, 2, dtype=torch.long),
        torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t(),
        torch.zeros((2, 0), dtype=torch.long),
    )
    kind = UnitKind("pairs", lambda instance, entries: rows)
    loops = torch.zeros(2, elements, dtype=torch.long)
    return pack([GraphTargets([Data(x=torch.ones(1, 1), edge_index=loops)]).instance(0)], [kind]).units


@settings(max_examples=120, deadline=None)
@given(many_to_many(), st.integers(0, 10**6))
def test_an_element_is_there_if_all_its_governors_are(shape: tuple[int, int, list[tuple[int, int]]], seed: int) -> None:
    elements, units, pairs = shape
    governors = _units_of_pairs(*shape).edges
    soft = torch.rand(units, generator=torch.Generator().manual_seed(seed)).mul(4).round().div(4).requires_grad_()
    hard = soft.detach() > 0.5
    by_element = [[unit for element, unit in pairs if element == one] for one in range(elements)]
    there = governors.present(hard)
    half = governors.present(soft)
    if not pairs:
        assert there is None
        assert half is None
        return
    assert there is not None
    assert half is not None
    assert there.tolist() == [all(bool(hard[unit]) for unit in own) for own in by_element]
    slow = torch.stack([math.prod((soft[unit] for unit in own), start=torch.ones(())) for own in by_element])
    assert torch.allclose(half, slow)
    slopes = [torch.autograd.grad(value.sum(), soft)[0] for value in (half, slow)]
    assert torch.allclose(*slopes)  # also where several factors are 0


# -- flags --------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(many_to_many(), st.data())
def test_a_fixed_unit_is_there_under_every_intervention(
    shape: tuple[int, int, list[tuple[int, int]]], data: st.DataObject
) -> None:
    elements, count, pairs = shape
    flags = st.lists(st.booleans(), min_size=count, max_size=count)
    fixed, states = (torch.tensor(data.draw(flags)) for _ in range(2))
    units = replace(_units_of_pairs(*shape), fixed=fixed)
    rest = _units_of_pairs(elements, count, [pair for pair in pairs if not fixed[pair[1]]])
    for given_states in (states, states.float() * 0.5):
        one, other = units.edges.present(units.there(given_states)), rest.edges.present(given_states)
        full = torch.ones(elements, dtype=given_states.dtype)
        assert torch.equal(full if one is None else one, full if other is None else other)
    assert not (units.admissible(states) & fixed).any()
    assert not units.admissible_mask(torch.ones(count))[fixed].any()


# -- a user's own kind, all the way through -----------------------------------------------------------------


def _check(model: torch.nn.Module, data: Data, e: cf2.Explanation, node: int | None, question: str = "why") -> None:
    units: list[Unit] = [(e.units.names[k], tuple(ids)) for k, ids in zip(e.units.kind, e.units.ids.tolist())]  # type: ignore[misc]
    chosen = {unit for unit, inside in zip(units, e.selected) if inside}
    for gone, said, same in (
        (set(units) - chosen, e.probabilities_only, e.sufficient),
        (chosen, e.probabilities_without, not e.necessary),
    ):
        really = probabilities(model, edited(data, gone), node)
        assert torch.allclose(really, torch.from_numpy(said), atol=1e-5)
        assert same == (int(really.argmax()) == e.prediction)
    if len(units) > 9:
        return
    every = passing(model, data, node, units, e.prediction, question)
    if e.status == "found":
        assert chosen in every
    if e.status == "impossible":
        assert not every
    if e.optimal:
        assert len(chosen) == len(every[0])


@pytest.mark.usefixtures("whole_nodes")
@pytest.mark.parametrize("names", [("whole_nodes",), ("edges", "whole_nodes"), ("whole_nodes", "columns", "features")])
@pytest.mark.parametrize("kind", ["sum", "gat"])
def test_verdicts_on_a_users_own_units_are_true(kind: str, names: tuple[str, ...]) -> None:
    data, model = random_graph(7, 6, features=3, seed=5), NodeNet(kind, features=3, seed=2, layers=2)
    found = cf2.explain(model, data, nodes=range(7), units=names, proof=600)
    assert any(e.status == "found" and e.size for e in found)
    for e in found:
        assert e.units.names == names
        _check(model, data, e, int(e.key))  # type: ignore[call-overload]


@pytest.mark.usefixtures("whole_nodes")
@pytest.mark.parametrize("method", ["cf2-relaxed", "cf-gnnexplainer", "gnnexplainer", "gradient", "random"])
def test_other_methods_score_a_users_own_units(method: str) -> None:
    data, model = random_graph(6, 7, seed=5), GraphNet("gin", seed=1)
    settings = {"epochs": 10} if method not in ("gradient", "random") else {}
    (e,) = cf2.explain(model, [data], units="whole_nodes", method=method, **settings)
    assert e.num_units == 6
    _check(model, data, e, None)
