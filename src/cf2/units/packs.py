"""Many instances -> one disjoint graph, and back.

Everything is a concatenation with a pointer, so `Pack.take` can drop, repeat and reorder instances without a
loop: dropping is how a converged instance leaves an optimisation, repeating is how a search tries many sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from cf2.errors import CF2Error, require
from cf2.graphs.graph import Extras, Instance, Kind, kinds_that_fit, take_extras
from cf2.options import Key
from cf2.units.kinds import (
    FLAGS,
    Governors,
    InstanceUnits,
    NewValues,
    Spans,
    UnitKind,
    Units,
    owners,
    pointer,
    spans,
    unit_kinds,
    units_of,
)

WIDE, SPARSE = 512, 0.1  # features at least this wide and at most this full are kept as their non-zero entries


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Rows of wide features by their non-zero entries; `before` are rows of another table that come first."""

    ptr: Tensor  # [rows + 1]
    column: Tensor  # [F]
    value: Tensor  # [F]
    before: FeatureTable | None = None
    known: dict[int, tuple[Tensor, int, Tensor]] = field(default_factory=dict)  # products with parameters

    @property
    def total(self) -> int:
        """How many rows there are, those of `before` included."""
        return len(self.ptr) - 1 + (0 if self.before is None else self.before.total)

    def times(self, weight: Tensor, transposed: bool) -> Tensor:
        """All rows @ weight, or @ weight.t()."""
        wide = (weight.t() if transposed else weight).contiguous()
        own = embedding_bag(
            self.column, wide, self.ptr, mode="sum", per_sample_weights=self.value, include_last_offset=True
        )
        return own if self.before is None else torch.cat([self.before.product(weight, transposed), own])

    def product(self, weight: Tensor, transposed: bool) -> Tensor:
        """The same for a parameter of a frozen model, computed once."""
        held, version, product = self.known.get(id(weight), (None, 0, weight))
        if held is not weight or version != weight._version:
            with torch.no_grad():
                product = self.times(weight, transposed)
            self.known[id(weight)] = weight, weight._version, product
        return product


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Wide features as rows of a table, which all trials of a pack share."""

    table: FeatureTable
    row: Tensor  # [N], the row of each node

    def take(self, nodes: Tensor) -> SparseFeatures:
        """The features of some nodes."""
        return replace(self, row=self.row[nodes])

    def entries(self) -> FeatureTable:
        """A table of the nodes themselves, one after the other."""
        table = self.table
        if table.before is not None:
            shared = table.before
            ptr = torch.cat([shared.ptr, shared.ptr[-1] + table.ptr[1:]])
            columns, values = torch.cat([shared.column, table.column]), torch.cat([shared.value, table.value])
            table = FeatureTable(ptr, columns, values)
        place, ptr, _ = spans(table.ptr, self.row)
        return FeatureTable(ptr, table.column[place], table.value[place])

    def scaled(self, scale: Tensor) -> SparseFeatures:
        """The features with every entry [F] scaled; those whose scale is False are not there."""
        if scale.dtype == torch.bool:
            return self._without(~scale)
        own = self.entries()
        nodes = torch.arange(len(self.row), device=self.row.device)
        return SparseFeatures(replace(own, value=own.value * scale), nodes)

    def _without(self, gone: Tensor) -> SparseFeatures:
        """The features without some entries [F, bool]: only nodes that keep a part of theirs get a row of their own."""
        ptr = pointer(self.table.ptr.diff()[self.row])
        lost, count = pointer(gone)[ptr].diff(), ptr.diff()
        part = ((lost > 0) & (lost < count)).nonzero().flatten()
        place, own, _ = spans(ptr, part)
        kept = (~gone[place]).nonzero().flatten()
        entry = place[kept] + (self.table.ptr[self.row] - ptr[:-1])[part][owners(own)[kept]]
        # The first row of the new table has no entries, for nodes that keep none.
        left = torch.cat([count.new_zeros(1), (count - lost)[part]])
        table = FeatureTable(pointer(left), self.table.column[entry], self.table.value[entry], self.table)
        row = torch.where(lost > 0, self.table.total, self.row)
        row[part] = torch.arange(1, len(left), device=row.device) + self.table.total
        return SparseFeatures(table, row)

    def times(self, weight: Tensor, transposed: bool = False) -> Tensor:
        """features @ weight, or @ weight.t()."""
        if self.table.value.requires_grad or not isinstance(weight, torch.nn.Parameter):
            return self.entries().times(weight, transposed)
        shared = self.table.before is None
        return (self.table.product if shared else self.table.times)(weight, transposed)[self.row]

    def dense(self, width: int) -> Tensor:
        """The features [N, width]."""
        own = self.entries()
        x = torch.zeros(len(self.row), width, dtype=own.value.dtype, device=own.value.device)
        return x.index_put((owners(own.ptr), own.column), own.value)


@dataclass(frozen=True, eq=False)
class Pack:
    """B instances side by side.

    The elements that units govern are the columns of `edge_index` and the entries x[entry_row, entry_column].
    `targets` are the nodes to read per instance, with no column for graph-level outputs.
    """

    x: Tensor  # [N, d]
    edge_index: Tensor  # [2, E]
    entry_row: Tensor  # [F]
    entry_column: Tensor  # [F]
    units: Units
    targets: Tensor  # [B, nodes to read]
    node_ptr: Tensor  # [B + 1]
    edge_ptr: Tensor  # [B + 1]
    entry_ptr: Tensor  # [B + 1]
    keys: Tensor  # [B, numbers in a key]
    extras: Extras
    sparse: SparseFeatures | None = None  # wide features; `x` is then a shape without memory

    @property
    def num_instances(self) -> int:
        """B, the number of instances."""
        return int(self.keys.size(0))

    @property
    def batch(self) -> Tensor:
        """The instance of every node."""
        return owners(self.node_ptr)

    def key(self, row: int) -> Key:
        """The key of an instance: a number, or a tuple of several."""
        numbers = tuple(self.keys[row].tolist())
        return numbers[0] if len(numbers) == 1 else numbers

    def to(self, device: torch.device | str) -> Pack:
        """The same pack on a device."""
        return self if self.x.device == torch.device(device) else moved(self, device)

    def features_of(self, nodes: Tensor) -> dict[str, Any]:
        """The features of some nodes, as the fields of a pack."""
        if self.sparse is None:
            return {"x": self.x[nodes]}
        return {"x": _shape(self.x, len(nodes)), "sparse": self.sparse.take(nodes)}

    def dense(self) -> Tensor:
        """The features [N, d]."""
        return self.x if self.sparse is None else self.sparse.dense(self.x.size(1))

    def take(self, index: Tensor) -> Pack:
        """The pack of instances `index`, which may repeat and reorder."""
        node_spans, edge_spans, entry_spans = (spans(p, index) for p in (self.node_ptr, self.edge_ptr, self.entry_ptr))
        (nodes, node_ptr, shift), (edges, edge_ptr, _), (entries, entry_ptr, _) = node_spans, edge_spans, entry_spans
        return Pack(
            **self.features_of(nodes),
            edge_index=self.edge_index[:, edges] + shift[owners(edge_ptr)],
            entry_row=self.entry_row[entries] + shift[owners(entry_ptr)],
            entry_column=self.entry_column[entries],
            units=_take_units(self.units, index, edge_spans, entry_spans, node_spans),
            targets=self.targets[index] + shift[:, None],
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            entry_ptr=entry_ptr,
            keys=self.keys[index],
            extras=take_extras(self.extras, {"node": nodes, "edge": edges, "graph": index}),
        )

    def without_nodes(self, nodes: Tensor) -> tuple[Pack, Tensor, Tensor]:
        """The pack in which only some nodes [N, bool] have rows, and the old positions of these and of its instances.

        Instances without any node left are not in it. Its edges and their rows in `extras` are still those of before,
        and the caller says which of them stay. Its units mean nothing any more.
        """
        kept = nodes.nonzero().flatten()
        counts = torch.bincount(self.batch[kept], minlength=self.num_instances)
        left = counts.nonzero().flatten()
        number = nodes.long().cumsum(0) - 1
        smaller = replace(
            self,
            **self.features_of(kept),
            edge_index=number[self.edge_index],
            targets=number[self.targets[left]],
            node_ptr=pointer(counts[left]),
            keys=self.keys[left],
            extras=take_extras(self.extras, {"node": kept, "graph": left}),
        )
        return smaller, kept, left

    def singles(self) -> list[Pack]:
        """Each instance as a pack of its own."""
        return [self.take(self.node_ptr.new_tensor([row])) for row in range(self.num_instances)]

    def split(self, values: Tensor) -> list[Tensor]:
        """A value per unit -> one tensor per instance."""
        return list(torch.split(values, self.units.counts.tolist()))


def _take_units(units: Units, index: Tensor, edges: Spans, entries: Spans, nodes: Spans) -> Units:
    ptr = pointer(units.counts[index])
    shift = ptr[:-1] - units.ptr[index]
    flags = {name: value for name in FLAGS if (value := getattr(units, name)) is not None}
    if flags:
        own = spans(units.ptr, index)[0]
        flags = {name: value[own] for name, value in flags.items()}
    return Units(
        ptr,
        units.edges.take(edges, index, shift),
        units.entries.take(entries, index, shift),
        None if units.changes is None else _take_changes(units.changes, index, nodes[2], shift),
        narrowed=None if units.narrowed is None else units.narrowed[index],
        nodes=None if units.nodes is None else units.nodes.take(nodes, index, shift),
        **flags,
    )


def _take_changes(changes: NewValues, index: Tensor, node_shift: Tensor, unit_shift: Tensor) -> NewValues:
    positions, ptr, _ = spans(changes.ptr, index)
    owner = owners(ptr)
    row, unit = changes.row[positions] + node_shift[owner], changes.unit[positions] + unit_shift[owner]
    return NewValues(row, changes.column[positions], changes.value[positions], unit, ptr)


def moved(value: Any, device: torch.device | str) -> Any:
    """The same value with every tensor inside of it on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        parts = [moved(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {name: moved(part, device) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **moved(vars(value), device))
    return value


EDGES = unit_kinds(["edges"])


def pack(
    instances: Sequence[Instance],
    kinds: Sequence[UnitKind] = EDGES,
    *,
    tables: Sequence[InstanceUnits] | None = None,
    takes: Callable[[str], bool] = lambda name: True,
) -> Pack:
    """Put instances side by side, with units of the given kinds; `tables` are their units, where they are known.

    Extra tensors are kept if the model `takes` an argument of that name.

    >>> from torch_geometric.data import Data
    >>> from cf2.graphs.targets import GraphTargets
    >>> triangle = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]]))
    >>> pack([GraphTargets([triangle]).instance(0)] * 2).units.ptr
    tensor([0, 3, 6])
    """
    require(len(instances) > 0, "Expected at least one instance to pack", got="none")
    kinds_of_x = sorted({f"{i.x.dtype} in {i.x.size(1)} columns" for i in instances})
    require(len(kinds_of_x) == 1, "Expected all graphs to have features of one kind", got=" and ".join(kinds_of_x[:2]))
    tables = [units_of(instance, kinds) for instance in instances] if tables is None else tables
    node_ptr = _pointer(i.x.size(0) for i in instances)
    edge_ptr = _pointer(i.edge_index.size(1) for i in instances)
    entry_ptr = _pointer(len(t.entries) for t in tables)
    unit_ptr = _pointer(t.count for t in tables)
    entry = torch.cat([t.entries for t in tables])
    sparse = _sparse(instances)
    # All instances have the same kinds of unit, so these are there for all of them or for none.
    absent = [t.absent for t in tables if t.absent is not None]
    nodes = [t.nodes for t in tables if t.nodes is not None]
    keys = [i.key if isinstance(i.key, tuple) else (i.key,) for i in instances]
    return Pack(
        x=torch.cat([i.x for i in instances]) if sparse is None else _shape(instances[0].x, int(node_ptr[-1])),
        sparse=sparse,
        edge_index=torch.cat([i.edge_index for i in instances], 1) + node_ptr[owners(edge_ptr)],
        entry_row=entry[:, 0] + node_ptr[owners(entry_ptr)],
        entry_column=entry[:, 1],
        units=Units(
            unit_ptr,
            _governors([t.edges for t in tables], edge_ptr, unit_ptr),
            _governors([t.features for t in tables], entry_ptr, unit_ptr),
            _changes(tables, node_ptr, unit_ptr),
            absent=torch.cat(absent) if absent else None,
            narrowed=torch.tensor([i.narrowed > 0 for i in instances]) if any(i.narrowed for i in instances) else None,
            nodes=_governors(nodes, node_ptr, unit_ptr) if nodes else None,
        ),
        targets=torch.tensor([i.targets for i in instances], dtype=torch.long) + node_ptr[:-1, None],
        node_ptr=node_ptr,
        edge_ptr=edge_ptr,
        entry_ptr=entry_ptr,
        keys=torch.tensor(keys),
        extras=_pack_extras(instances, takes),
    )


def _pointer(counts: Iterable[int]) -> Tensor:
    return pointer(torch.tensor(list(counts)))


def _governors(parts: Sequence[tuple[Tensor, Tensor]], ptr: Tensor, unit_ptr: Tensor) -> Governors:
    first = torch.cat([first for first, _ in parts])
    further_ptr = _pointer(further.size(1) for _, further in parts)
    owner = owners(further_ptr)
    return Governors(
        torch.where(first < 0, first, first + unit_ptr[owners(ptr)]),
        torch.cat([further for _, further in parts], 1) + torch.stack([ptr[owner], unit_ptr[owner]]),
        further_ptr,
        some=bool((first >= 0).any()),
        every=bool((first >= 0).all()),
    )


def _changes(tables: Sequence[InstanceUnits], node_ptr: Tensor, unit_ptr: Tensor) -> NewValues | None:
    if all(table.changes is None for table in tables):
        return None
    rows = torch.tensor([row for row, table in enumerate(tables) if table.changes is not None])
    changes = [table.changes for table in tables if table.changes is not None]
    owner = rows.repeat_interleave(torch.tensor([len(change.value) for change in changes]))
    place, value, unit = (
        torch.cat([getattr(change, name) for change in changes]) for name in ("place", "value", "unit")
    )
    ptr = pointer(torch.bincount(owner, minlength=len(tables)))
    return NewValues(place[:, 0] + node_ptr[owner], place[:, 1], value, unit + unit_ptr[owner], ptr)


def _shape(x: Tensor, rows: int) -> Tensor:
    """A matrix of that many rows which takes no memory."""
    return x.new_zeros(1, 1).expand(rows, x.size(1))


def _sparse(instances: Sequence[Instance]) -> SparseFeatures | None:
    if any(i.changes is not None for i in instances):
        return None  # a changed entry may be one that is 0 at first
    if instances[0].x.size(1) < WIDE or instances[0].x.dtype not in (torch.float32, torch.float64):
        return None
    places = [i.x.nonzero() for i in instances]
    if sum(map(len, places)) > SPARSE * sum(i.x.numel() for i in instances):
        return None
    return sparse_features([i.x for i in instances], places)


def sparse_features(parts: Sequence[Tensor], places: Sequence[Tensor]) -> SparseFeatures:
    """Features, given as parts one below the other, by the places [·, 2] of their entries that are not 0."""
    counts = torch.cat([torch.bincount(p[:, 0], minlength=x.size(0)) for x, p in zip(parts, places)])
    values = torch.cat([x[p[:, 0], p[:, 1]] for x, p in zip(parts, places)])
    return SparseFeatures(
        FeatureTable(pointer(counts), torch.cat(list(places))[:, 1], values), torch.arange(len(counts))
    )


def _pack_extras(instances: Sequence[Instance], takes: Callable[[str], bool]) -> Extras:
    """The extras that the model takes; each belongs to the same kind of thing in all instances."""
    packed: Extras = {}
    for name in dict.fromkeys(name for instance in instances for name in instance.extras if takes(name)):
        missing = [instance.key for instance in instances if name not in instance.extras]
        require(
            not missing,
            f"Expected all graphs to have `{name}`, with a row per node, per edge or per graph",
            got="none that fits in graph " + ", ".join(map(str, missing[:1])),
            do="Give it to all of them, or remove it.",
        )
        values = [instance.extras[name][1] for instance in instances]
        for instance, value in zip(instances, values):
            require(
                instance.extras[name][0] != "misfit",
                f"Expected `{name}` to have a row for each of the edges, or of the nodes",
                got=f"shape {tuple(value.shape)}",
            )
        require(
            len({(value.dtype, value.shape[1:]) for value in values}) == 1,
            f"Expected `{name}` to have one dtype and one width in all graphs",
            got=" and ".join(sorted({f"{value.dtype} {tuple(value.shape[1:])}" for value in values})[:2]),
        )
        packed[name] = (_common_kind(name, instances), torch.cat(values))
    return packed


def _common_kind(name: str, instances: Sequence[Instance]) -> Kind:
    """Whether an extra belongs to nodes, edges or graphs; a size that could be either is settled by the others."""
    fits = [kinds_that_fit(name, i.extras[name][1].size(0), i.x.size(0), i.edge_index.size(1)) for i in instances]
    common = [kind for kind in fits[0] if all(kind in others for others in fits)]
    if not common:
        raise CF2Error(f"Expected `{name}` to have a row per node, per edge or per graph, the same in all graphs")
    return common[0]


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
