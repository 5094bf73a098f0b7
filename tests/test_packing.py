"""Packing is a concatenation that can be taken apart, repeated and reordered."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from cf2.instances import graph_instances
from cf2.packing import Pack, chunks, pack
from toys import random_graph


def parts(packed: Pack, row: int) -> list[Tensor]:
    """One instance of a pack in its own numbering, by plain slicing."""
    nodes = slice(*packed.node_ptr[row : row + 2].tolist())
    edges = slice(*packed.edge_ptr[row : row + 2].tolist())
    entries = slice(*packed.entry_ptr[row : row + 2].tolist())
    unit = packed.edge_unit[edges]
    return [
        packed.dense()[nodes],
        packed.edge_index[:, edges] - nodes.start,
        torch.where(unit < 0, unit, unit - packed.unit_ptr[row]),
        packed.entry_row[entries] - nodes.start,
        packed.entry_column[entries],
        packed.entry_unit[entries] - packed.unit_ptr[row],
    ]


def graphs(wide: bool = False) -> list[Data]:
    made = [random_graph(3 + seed, 2 * seed, seed=seed) for seed in range(5)]
    for graph in made:
        if wide:
            graph.x = torch.zeros(graph.x.size(0), 600)
            graph.x[:, 7] = 2.0
    return made


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.booleans(), st.booleans())
def test_take_gives_the_instances_it_names(index: list[int], features: bool, wide: bool) -> None:
    packed = pack(graph_instances(graphs(wide)), features=features)
    assert (packed.entries is not None) == wide
    taken = packed.take(torch.tensor(index))
    assert taken.keys.tolist() == index
    for row, original in enumerate(index):
        for one, other in zip(parts(taken, row), parts(packed, original)):
            assert torch.equal(one, other)


def test_split_gives_values_back_by_instance() -> None:
    packed = pack(graph_instances(graphs()))
    values = torch.arange(packed.num_units)
    assert torch.equal(torch.cat(packed.split(values)), values)
    assert [len(part) for part in packed.split(values)] == packed.units.tolist()


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60))
def test_chunks_cover_everything_once_within_the_budget(costs: list[int], budget: int) -> None:
    found = list(chunks(costs, budget))
    assert [i for part in found for i in range(len(costs))[part]] == list(range(len(costs)))
    assert all(sum(costs[part]) <= budget or part.stop - part.start == 1 for part in found)
