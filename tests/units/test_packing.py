"""Packing is a concatenation that can be taken apart, repeated and reordered."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import CF2Error
from cf2.graphs.graph import Graph, Instance
from cf2.graphs.targets import GraphTargets, stream
from cf2.units.kinds import Governors, UnitKind, unit_kinds
from cf2.units.packs import Pack, chunks, pack, sparse_features
from toys import WHOLE_NODES, random_graph

EDGES, FEATURES, COLUMNS = unit_kinds(["edges", "features", "columns"])


def parts(packed: Pack, row: int) -> list[Tensor]:
    """One instance of a pack in its own numbering, by plain slicing."""
    nodes = slice(*packed.node_ptr[row : row + 2].tolist())
    edges = slice(*packed.edge_ptr[row : row + 2].tolist())
    entries = slice(*packed.entry_ptr[row : row + 2].tolist())
    start = packed.units.ptr[row]
    flags = [packed.units.selectable, packed.units.required, packed.units.fixed]
    mine = slice(*packed.units.ptr[row : row + 2].tolist())
    return [
        packed.dense()[nodes],
        packed.edge_index[:, edges] - nodes.start,
        packed.entry_row[entries] - nodes.start,
        packed.entry_column[entries],
        packed.targets[row] - nodes.start,
        *governors(packed.units.edges, row, edges, start),
        *governors(packed.units.entries, row, entries, start),
        *(flag[mine] for flag in flags if flag is not None),
        *(
            value[{"node": nodes, "edge": edges, "graph": slice(row, row + 1)}[kind]]
            for kind, value in packed.extras.values()
        ),
    ]


def governors(known: Governors, row: int, elements: slice, start: Tensor) -> list[Tensor]:
    first = known.first[elements]
    further = known.further[:, slice(*known.ptr[row : row + 2].tolist())] if known.further.numel() else known.further
    return [torch.where(first < 0, first, first - start), further - torch.tensor([[elements.start], [int(start)]])]


def graphs(wide: bool = False) -> list[Data]:
    made = [random_graph(3 + seed, 2 * seed, seed=seed) for seed in range(5)]
    for graph in made:
        graph.edge_attr = torch.rand(graph.edge_index.size(1), 2)
        graph.place = torch.rand(graph.x.size(0))
        graph.whole = torch.rand(1, 3)
        if wide:
            graph.x = torch.zeros(graph.x.size(0), 600)
            graph.x[:, 7] = 2.0
    return made


def instances(wide: bool = False) -> list[Instance]:
    targets = GraphTargets(graphs(wide))
    return [targets.instance(key) for key in range(5)]


KINDS = [(EDGES,), (EDGES, FEATURES), (WHOLE_NODES,), (EDGES, WHOLE_NODES, COLUMNS)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
    st.sampled_from(KINDS),
    st.booleans(),
    st.sets(st.sampled_from(["selectable", "required", "fixed"])),
)
def test_take_gives_the_instances_it_names(
    index: list[int], kinds: tuple[UnitKind, ...], wide: bool, flags: set[str]
) -> None:
    packed = _flagged(pack(instances(wide), kinds), flags)
    assert (packed.sparse is not None) == wide
    assert (packed.units.edges.further.numel() > 0) == (WHOLE_NODES in kinds)
    taken = packed.take(torch.tensor(index))
    assert [taken.key(row) for row in range(len(index))] == index
    again = taken.take(torch.arange(len(index)).flip(0))
    for row, original in enumerate(index):
        for other in (parts(taken, row), parts(again, len(index) - 1 - row)):
            assert len(other) == len(parts(packed, original))
            assert all(torch.equal(a, b) for a, b in zip(other, parts(packed, original)))


def _flagged(packed: Pack, flags: set[str]) -> Pack:
    drawn = {name: torch.rand(packed.units.count, generator=stream(0, len(name))) < 0.5 for name in sorted(flags)}
    return replace(packed, units=replace(packed.units, **drawn))


def test_keys_of_two_numbers_are_tuples() -> None:
    graph = Graph(random_graph(20, 25, seed=1))
    pairs = [(3, 7), (7, 3), (4, 4)]
    packed = pack([graph.cut(pair, 2, "in", pair) for pair in pairs])
    assert packed.keys.shape == (3, 2)
    assert [packed.key(row) for row in range(3)] == pairs
    assert packed.targets.shape == (3, 2)
    taken = packed.take(torch.tensor([2, 0, 0]))
    assert [taken.key(row) for row in range(3)] == [(4, 4), (3, 7), (3, 7)]
    read = packed.x[packed.targets]
    assert torch.equal(read, torch.stack([graph.x[list(pair)] for pair in pairs]))


def test_only_what_the_model_takes_is_packed() -> None:
    packed = pack(instances(), takes=lambda name: name == "place")
    assert set(packed.extras) == {"place"}


def test_nothing_cannot_be_packed() -> None:
    with pytest.raises(CF2Error, match="at least one instance"):
        pack([])


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60))
def test_chunks_cover_everything_once_within_the_budget(costs: list[int], budget: int) -> None:
    found = list(chunks(costs, budget))
    assert [i for part in found for i in range(len(costs))[part]] == list(range(len(costs)))
    assert all(sum(costs[part]) <= budget or part.stop - part.start == 1 for part in found)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_wide_features_are_scaled_and_multiplied_as_dense_ones(share: float) -> None:
    """With entries gone, or half there: of nodes that are taken more than once, and that keep all, some or none."""
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(9, 600, generator=draw) * (torch.rand(9, 600, generator=draw) < 0.05)
    x[4] = 0
    taken = sparse_features([x], [x.nonzero()]).take(torch.tensor([3, 0, 4, 3, 8]))
    dense = x[[3, 0, 4, 3, 8]]
    assert torch.equal(taken.dense(600), dense)
    scale = torch.rand(int((dense != 0).sum()), generator=draw)
    weight = torch.nn.Parameter(torch.randn(600, 7, generator=draw))
    for of_entry in (scale < share, scale):
        expected = dense.clone()
        expected[dense != 0] *= of_entry
        scaled = taken.scaled(of_entry)
        assert torch.equal(scaled.dense(600), expected)
        for factor, transposed in ((weight, False), (weight.t(), True), (weight.detach(), False)):
            product = scaled.times(factor.contiguous() if transposed else factor, transposed)
            assert torch.allclose(product, expected @ weight, atol=1e-5)
    with torch.no_grad():
        weight *= 2
    assert torch.allclose(taken.times(weight), dense @ weight, atol=1e-5)
