"""Many instances -> one disjoint graph, and back.

Everything is a concatenation with a pointer, so `Pack.take` can drop, repeat and reorder instances without a
loop: dropping is how a converged instance leaves an optimisation, repeating is how a search tries many sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cf2.errors import CF2Error
from cf2.instances import Extras, Instance

WIDE, SPARSE = (
    512,
    0.1,
)  # features at least this wide and at most this full are kept as their non-zero entries


@dataclass(frozen=True, eq=False)
class Entries:
    """The non-zero entries of wide features, row by row; `ptr` is their pointer by node."""

    ptr: Tensor  # [N + 1]
    column: Tensor  # [F]
    value: Tensor  # [F]

    def take(self, nodes: Tensor) -> Entries:
        place, ptr, _ = spans(self.ptr, nodes)
        return Entries(ptr, self.column[place], self.value[place])


@dataclass(frozen=True, eq=False)
class Pack:
    """B instances side by side. The units of one are its edges, then its features, at `unit_ptr`.

    `edge_unit[e]` is the unit of an edge column (-1: never masked); `entry_unit[f]` the unit of the feature
    entry x[entry_row[f], entry_column[f]]. `target` is the node to read, or None for graph-level outputs.
    """

    x: Tensor  # [N, d]
    edge_index: Tensor  # [2, E]
    edge_unit: Tensor  # [E]
    entry_row: Tensor  # [F]
    entry_column: Tensor  # [F]
    entry_unit: Tensor  # [F]
    target: Tensor | None  # [B]
    node_ptr: Tensor  # [B + 1]
    edge_ptr: Tensor  # [B + 1]
    entry_ptr: Tensor  # [B + 1]
    unit_ptr: Tensor  # [B + 1]
    keys: Tensor  # [B]
    extras: Extras
    open: Tensor | None = None  # [units] bool, the units that may be chosen; None: all
    entries: Entries | None = None  # wide features; `x` is then a shape without memory

    @property
    def size(self) -> int:
        """B, the number of instances."""
        return int(self.keys.numel())

    @property
    def num_units(self) -> int:
        return int(self.unit_ptr[-1])

    @property
    def batch(self) -> Tensor:
        """The instance of every node."""
        return owners(self.node_ptr)

    @property
    def unit_owner(self) -> Tensor:
        """The instance of every unit."""
        return owners(self.unit_ptr)

    @property
    def units(self) -> Tensor:
        """How many units each instance has, [B]."""
        return self.unit_ptr.diff()

    def to(self, device: torch.device | str) -> Pack:
        """The same pack on a device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        extras: Extras = {name: (kind, value.to(device)) for name, (kind, value) in self.extras.items()}
        wide = self.entries
        if wide is not None:
            wide = Entries(wide.ptr.to(device), wide.column.to(device), wide.value.to(device))
        return replace(self, **moved, extras=extras, entries=wide)

    def dense(self, values: Tensor | None = None) -> Tensor:
        """The features [N, d], with other values of the non-zero entries if given."""
        if self.entries is None:
            return self.x
        x = torch.zeros(self.x.shape, dtype=self.entries.value.dtype, device=self.x.device)
        index = (owners(self.entries.ptr), self.entries.column)
        return x.index_put(index, self.entries.value if values is None else values)

    def take(self, index: Tensor) -> Pack:
        """The pack of instances `index`, which may repeat and reorder."""
        nodes, node_ptr, node_shift = spans(self.node_ptr, index)
        edges, edge_ptr, _ = spans(self.edge_ptr, index)
        entries, entry_ptr, _ = spans(self.entry_ptr, index)
        unit_ptr = pointer(self.units[index])
        unit_shift = unit_ptr[:-1] - self.unit_ptr[index]
        of_edge, of_entry = owners(edge_ptr), owners(entry_ptr)
        edge_unit = self.edge_unit[edges]
        rows = {"node": nodes, "edge": edges, "graph": index}
        return Pack(
            x=self.x[nodes] if self.entries is None else _shape(self.x, len(nodes)),
            entries=None if self.entries is None else self.entries.take(nodes),
            edge_index=self.edge_index[:, edges] + node_shift[of_edge],
            edge_unit=torch.where(edge_unit < 0, edge_unit, edge_unit + unit_shift[of_edge]),
            entry_row=self.entry_row[entries] + node_shift[of_entry],
            entry_column=self.entry_column[entries],
            entry_unit=self.entry_unit[entries] + unit_shift[of_entry],
            target=None if self.target is None else self.target[index] + node_shift,
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            entry_ptr=entry_ptr,
            unit_ptr=unit_ptr,
            keys=self.keys[index],
            extras={name: (kind, value[rows[kind]]) for name, (kind, value) in self.extras.items()},
            open=None if self.open is None else self.open[spans(self.unit_ptr, index)[0]],
        )

    def split(self, values: Tensor) -> list[Tensor]:
        """A value a unit -> one tensor an instance."""
        return list(torch.split(values, self.units.tolist()))


def pointer(counts: Tensor) -> Tensor:
    """[a, b, c] -> [0, a, a+b, a+b+c]."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def owners(ptr: Tensor) -> Tensor:
    """[0, 2, 5] -> [0, 0, 1, 1, 1]: the span every position lies in."""
    return torch.repeat_interleave(ptr.diff())


def spans(ptr: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Positions of the spans `index`, end to end; their new pointer; and by how much each one moved."""
    new = pointer(ptr.diff()[index])
    shift = new[:-1] - ptr[index]
    return torch.arange(int(new[-1]), device=ptr.device) - shift[owners(new)], new, shift


def pack(instances: Sequence[Instance], *, edges: bool = True, features: bool = False) -> Pack:
    """Put instances side by side; only the kinds of unit that are asked for can be masked.

    >>> from torch_geometric.data import Data
    >>> from cf2.instances import graph_instances
    >>> triangle = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]]))
    >>> pack(graph_instances([triangle, triangle])).unit_ptr
    tensor([0, 3, 6])
    """
    if not instances:
        raise CF2Error("Expected at least one instance to pack", got="none")
    entries = [i.feature_entries() if features else i.edge_unit.new_zeros((0, 2)) for i in instances]
    edge_units = [i.num_edge_units if edges else 0 for i in instances]
    count = torch.tensor
    node_ptr = pointer(count([i.x.size(0) for i in instances]))
    unit_ptr = pointer(count([e + len(f) for e, f in zip(edge_units, entries)]))
    edge_ptr = pointer(count([i.edge_index.size(1) for i in instances]))
    entry_ptr = pointer(count([len(f) for f in entries]))
    of_edge = owners(edge_ptr)
    edge_unit = torch.cat([i.edge_unit if edges else torch.full_like(i.edge_unit, -1) for i in instances])
    entry = torch.cat(entries)
    entry_owner = owners(entry_ptr)
    entry_first = unit_ptr[:-1] + count(edge_units) - entry_ptr[:-1]
    targets = count([i.target for i in instances])
    wide = _wide(instances)
    return Pack(
        x=torch.cat([i.x for i in instances]) if wide is None else _shape(instances[0].x, int(node_ptr[-1])),
        entries=wide,
        edge_index=torch.cat([i.edge_index for i in instances], 1) + node_ptr[of_edge],
        edge_unit=torch.where(edge_unit < 0, edge_unit, edge_unit + unit_ptr[of_edge]),
        entry_row=entry[:, 0] + node_ptr[entry_owner],
        entry_column=entry[:, 1],
        entry_unit=torch.arange(len(entry)) + entry_first[entry_owner],
        target=None if instances[0].target < 0 else targets + node_ptr[:-1],
        node_ptr=node_ptr,
        edge_ptr=edge_ptr,
        entry_ptr=entry_ptr,
        unit_ptr=unit_ptr,
        keys=count([i.key for i in instances]),
        extras=_pack_extras(instances),
    )


def _shape(x: Tensor, rows: int) -> Tensor:
    """A matrix of that many rows which takes no memory."""
    return x.new_zeros(1, 1).expand(rows, x.size(1))


def _wide(instances: Sequence[Instance]) -> Entries | None:
    if instances[0].x.size(1) < WIDE:
        return None
    places = [i.x.nonzero() for i in instances]
    if sum(map(len, places)) > SPARSE * sum(i.x.numel() for i in instances):
        return None
    counts = torch.cat([torch.bincount(p[:, 0], minlength=i.x.size(0)) for i, p in zip(instances, places)])
    values = torch.cat([i.x[p[:, 0], p[:, 1]] for i, p in zip(instances, places)])
    return Entries(pointer(counts), torch.cat(places)[:, 1], values)


def _pack_extras(instances: Sequence[Instance]) -> Extras:
    names = [name for name in instances[0].extras if all(name in i.extras for i in instances)]
    return {name: (instances[0].extras[name][0], torch.cat([i.extras[name][1] for i in instances])) for name in names}


def chunks(costs: Sequence[int], budget: int) -> Iterator[slice]:
    """Consecutive runs whose costs add up to at most `budget` (or hold one instance).

    >>> list(chunks([3, 3, 3, 9, 1], 6))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    start, total = 0, 0
    for position, cost in enumerate(costs):
        if position > start and total + cost > budget:
            yield slice(start, position)
            start, total = position, 0
        total += cost
    if start < len(costs):
        yield slice(start, len(costs))
