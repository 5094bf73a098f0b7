"""What an explanation is made of: units, and the elements of the graph that each of them governs.

An *element* is an edge column of the packed graph, an entry of its features, or a node. A *unit* is what can be chosen
or not: an undirected edge governs its two columns and their duplicates, a feature unit one entry, a node itself and
everything at it. A node that is not there has no row in any tensor, so counts, means and norms are of the others.
Units govern elements many to many: an element stays if *every* unit that governs it does. An element without a
unit, such as a self-loop, is left alone. A new kind of unit is one `UnitKind` in the table below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cf2.errors import CF2Error, require, unknown_name
from cf2.graphs.graph import NODE_IDS, Changes, Instance, Role, edge_positions
from cf2.options import AUTO

# -- units -----------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The units of one kind in one instance, and what they govern."""

    ids: Tensor  # [u, 2], in the user's ids
    edges: Tensor  # [2, ·], pairs of an edge column and a unit
    entries: Tensor  # [2, ·], pairs of a feature entry and a unit
    types: Tensor | None = None  # [u], the type of each edge or column, where the graph has types
    nodes: Tensor | None = None  # [2, ·], pairs of a local node and a unit; the edges of such a node are in `edges`


@dataclass(frozen=True)
class UnitKind:
    """A kind of unit by name. `rows(instance, entries)` gives its units; `entries` [f, 2] are those that are not 0.

    `features` says whether units of this kind govern feature entries; without any, entries need not be listed.
    `absent` says that what they govern is not in the graph at first, and is once a unit is edited.
    """

    name: str
    rows: Callable[[Instance, Tensor], Rows]
    features: bool = False
    absent: bool = False


def _edges(instance: Instance, entries: Tensor, role: int = Role.THERE) -> Rows:
    """Both directions of an undirected edge, and all its duplicates, are one unit; self-loops are none.

    So are edges of one type, and those of the type that mirrors it.
    """
    tail, head = instance.edge_index.numpy()
    roles = np.zeros_like(tail) if instance.role is None else instance.role.numpy()
    single = (tail != head) & (roles == role)
    if instance.groups is not None:
        single &= instance.groups.numpy() < 0  # an edge of a group is no unit by itself
    proper = np.flatnonzero(single)
    code, unit = np.unique(instance.codes.numpy()[proper], return_inverse=True)
    nodes = NODE_IDS if instance.types is None else instance.types.starts[-1]
    ids = np.stack([code // nodes % nodes, code % nodes], 1)
    types = None if instance.types is None else torch.from_numpy(code // nodes // nodes)
    return Rows(torch.from_numpy(ids), torch.from_numpy(np.stack([proper, unit.reshape(-1)])), _NO_PAIRS, types)


def _groups(instance: Instance, entries: Tensor) -> Rows:
    """Edges of the same group are one unit, named by its number; an edge without a group is left alone."""
    group = torch.full_like(instance.edge_index[0], -1) if instance.groups is None else instance.groups
    near = torch.zeros_like(group) if instance.role is None else instance.role
    columns = ((group >= 0) & (near == Role.THERE)).nonzero().flatten()
    numbers, unit = torch.unique(group[columns], return_inverse=True)
    ids = torch.stack([numbers, torch.full_like(numbers, -1)], 1)
    return Rows(ids, torch.stack([columns, unit]), _NO_PAIRS)


def _nodes(instance: Instance, entries: Tensor) -> Rows:
    """A node goes with all its edges and features; the nodes that are explained stay."""
    others = torch.ones(len(instance.node_ids), dtype=torch.bool)
    others[list(instance.targets)] = False
    number = others.long().cumsum(0) - 1
    tail, head = instance.edge_index
    column = torch.arange(len(tail))
    ends = [torch.stack([column, end])[:, others[end]] for end in (tail, head)]
    ends[1] = ends[1][:, tail[ends[1][0]] != head[ends[1][0]]]  # a loop has one governor
    pairs = torch.cat(ends, 1)
    soft = others if instance.x.is_floating_point() else torch.zeros_like(others)  # a category has no soft mask
    entry = torch.stack([torch.arange(len(entries)), entries[:, 0]])[:, soft[entries[:, 0]]]
    ids = instance.node_ids[others]
    return Rows(
        torch.stack([ids, torch.full_like(ids, -1)], 1),
        torch.stack([pairs[0], number[pairs[1]]]),
        torch.stack([entry[0], number[entry[1]]]),  # for soft masks alone: what is gone needs no zeros
        nodes=torch.stack([others.nonzero().flatten(), torch.arange(len(ids))]),
    )


def _features(instance: Instance, entries: Tensor) -> Rows:
    """Every entry that is not 0 is a unit."""
    ids = torch.stack([instance.node_ids[entries[:, 0]], entries[:, 1]], 1)
    return Rows(ids, _NO_PAIRS, torch.arange(len(entries)).repeat(2, 1))


def _node_features(instance: Instance, entries: Tensor) -> Rows:
    """All entries of a node are one unit."""
    nodes, unit = torch.unique(entries[:, 0], return_inverse=True)
    ids = torch.stack([instance.node_ids[nodes], torch.full_like(nodes, -1)], 1)
    return Rows(ids, _NO_PAIRS, torch.stack([torch.arange(len(entries)), unit]))


def _columns(instance: Instance, entries: Tensor) -> Rows:
    """All entries of a column are one unit; with types, all of one type."""
    kind = None if instance.types is None else instance.extras["node_type"][1][entries[:, 0]]
    wide = instance.x.size(1)
    code = entries[:, 1] if kind is None else kind * wide + entries[:, 1]
    code, unit = torch.unique(code, return_inverse=True)
    ids = torch.stack([torch.full_like(code, -1), code % max(wide, 1)], 1)
    types = None if kind is None else code // max(wide, 1)
    return Rows(ids, _NO_PAIRS, torch.stack([torch.arange(len(entries)), unit]), types)


def _changes(instance: Instance, entries: Tensor) -> Rows:
    """The changes of features that may be made."""
    return Rows(_NO_PAIRS.t() if instance.changes is None else instance.changes.ids, _NO_PAIRS, _NO_PAIRS)


_NO_PAIRS = torch.zeros((2, 0), dtype=torch.long)
KINDS: dict[str, UnitKind] = {
    kind.name: kind
    for kind in (
        UnitKind("edges", _edges),
        UnitKind("features", _features, features=True),
        UnitKind("nodes", _nodes, features=True),
        UnitKind("node_features", _node_features, features=True),
        UnitKind("columns", _columns, features=True),
        UnitKind("groups", _groups),
        UnitKind("added_edges", partial(_edges, role=Role.CANDIDATE), absent=True),
        UnitKind("changes", _changes, absent=True),
    )
}


def unit_kinds(names: Sequence[str]) -> tuple[UnitKind, ...]:
    """The kinds of those names, or an error with the nearest name."""
    for name in names:
        if name not in KINDS:
            raise unknown_name("`units`", name, [AUTO, *KINDS])
    return tuple(KINDS[name] for name in names)


def register_unit_kind(kind: UnitKind) -> UnitKind:
    """Have `units=` know another kind of unit; one name means one kind."""
    if kind.name in KINDS:
        raise CF2Error("Expected a new name for a kind of unit", got=f"{kind.name!r}, which is taken")
    KINDS[kind.name] = kind
    return kind


@dataclass(frozen=True, eq=False)
class InstanceUnits:
    """The units of one instance, all kinds one after the other, in the user's ids."""

    names: tuple[str, ...]
    kind: Tensor  # [u], the place of each unit's kind in `names`
    ids: Tensor  # [u, 2]
    entries: Tensor  # [f, 2], the feature entries that are elements: local row and column
    edges: tuple[Tensor, Tensor]  # first unit of each edge column [e]; further pairs [2, ·]
    features: tuple[Tensor, Tensor]  # the same of each entry
    changes: Changes | None = None  # numbered as the units are
    absent: Tensor | None = None  # [u] bool
    types: Tensor | None = None  # [u], the type of each edge or column (else -1), where the graph has types
    nodes: tuple[Tensor, Tensor] | None = None  # as `edges`, of each node; None: none can go

    @property
    def count(self) -> int:
        return len(self.kind)

    def of_kind(self, name: str) -> Tensor:
        """Which units are of a kind [u, bool]."""
        return self.kind == (self.names.index(name) if name in self.names else -1)


def units_of(instance: Instance, kinds: Sequence[UnitKind]) -> InstanceUnits:
    """The units of an instance and what each of them governs."""
    entries = instance.x.nonzero() if any(kind.features for kind in kinds) else _NO_PAIRS.t()
    rows = [kind.rows(instance, entries) for kind in kinds]
    counts = [len(row.ids) for row in rows]
    starts = np.cumsum([0, *counts]).tolist()
    shift = [torch.tensor([[0], [start]]) for start in starts[:-1]]
    names = [kind.name for kind in kinds]
    changes = None
    if "changes" in names and instance.changes is not None:
        changes = instance.changes._replace(unit=instance.changes.unit + starts[names.index("changes")])
    absent = torch.tensor([kind.absent for kind in kinds])
    types = [torch.full((len(row.ids),), -1) if row.types is None else row.types for row in rows]
    nodes = [row.nodes + moved for row, moved in zip(rows, shift) if row.nodes is not None]
    return InstanceUnits(
        names=tuple(names),
        kind=torch.repeat_interleave(torch.tensor(counts)),
        ids=torch.cat([row.ids for row in rows]),
        entries=entries,
        edges=_governed(torch.cat([r.edges + s for r, s in zip(rows, shift)], 1), instance.edge_index.size(1)),
        features=_governed(torch.cat([r.entries + s for r, s in zip(rows, shift)], 1), len(entries)),
        changes=changes,
        absent=torch.repeat_interleave(absent, torch.tensor(counts)) if bool(absent.any()) else None,
        types=None if instance.types is None else torch.cat(types),
        nodes=_governed(torch.cat(nodes, 1), len(instance.x)) if nodes else None,
    )


def places_in(wide: InstanceUnits, own: InstanceUnits) -> Tensor:
    """The positions of the units of one table in another that holds them all [units]."""

    def named(table: InstanceUnits) -> Iterator[tuple[Any, ...]]:
        types = [0] * table.count if table.types is None else table.types.tolist()
        return zip((table.names[kind] for kind in table.kind.tolist()), map(tuple, table.ids.tolist()), types)

    position = {unit: number for number, unit in enumerate(named(wide))}
    return torch.tensor([position[unit] for unit in named(own)], dtype=torch.long)


def edges_among(instance: Instance, table: InstanceUnits, known: Any) -> np.ndarray:
    """Which of the units, all of them edges, are among the `known` pairs [p, 2]; in a typed graph, pairs by edge type.

    In an undirected graph, a pair stands for both directions.
    """
    if instance.types is not None and table.types is not None:
        expected = f"Expected the true edges of {instance.key} as pairs by edge type"
        require(isinstance(known, Mapping), expected, got=type(known).__name__)
        return np.isin(instance.types.code(table.types.numpy(), *table.ids.numpy().T), instance.types.codes(known))
    pairs = torch.as_tensor(np.asarray(known).reshape(-1, 2)).long()
    pairs = pairs if instance.directed else pairs.sort(1).values
    return (edge_positions(pairs.t(), table.ids.t()) >= 0).numpy()


def _governed(pairs: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    """Pairs [2, ·] of an element and a unit as the first unit of every element, and the pairs that are left."""
    first = torch.full((elements,), -1, dtype=torch.long)
    pairs = pairs[:, pairs[0].argsort(stable=True)]
    again = torch.cat([pairs[0, :1] < 0, pairs[0, 1:] == pairs[0, :-1]])
    first[pairs[0, ~again]] = pairs[1, ~again]
    return first, pairs[:, again]


# -- packed units ----------------------------------------------------------------------------------------

Spans = tuple[Tensor, Tensor, Tensor]


def pointer(counts: Tensor) -> Tensor:
    """[a, b, c] -> [0, a, a+b, a+b+c]."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def owners(ptr: Tensor) -> Tensor:
    """[0, 2, 5] -> [0, 0, 1, 1, 1]: the span every position lies in."""
    return torch.repeat_interleave(ptr.diff())


def spans(ptr: Tensor, index: Tensor) -> Spans:
    """Positions of the spans `index`, end to end; their new pointer; and by how much each one moved."""
    new = pointer(ptr.diff()[index])
    shift = new[:-1] - ptr[index]
    return torch.arange(int(new[-1]), device=ptr.device) - shift[owners(new)], new, shift


class Governors(NamedTuple):
    """Which units govern the elements of one sort: the first unit of each (-1: none), and further pairs."""

    first: Tensor  # [elements]
    further: Tensor  # [2, ·], pairs of an element and a unit
    ptr: Tensor  # [B + 1], the further pairs of each instance
    some: bool  # whether any element has a unit, and
    every: bool  # whether all have; known once for all that is taken from a pack

    def present(self, states: Tensor) -> Tensor | None:
        """Which elements are there, given which units are [units]: bool, or soft in [0, 1]; None: all of them."""
        return self.reader()(states)

    def reader(self) -> Callable[[Tensor], Tensor | None]:
        """`present` as a function that does only once what does not depend on the states."""
        if not self.some:
            return lambda states: None
        first_unit = self.first if self.every else self.first.clamp(min=0)
        governed = None if self.every else self.first >= 0
        element, unit = self.further

        def read(states: Tensor) -> Tensor | None:
            if not len(states):  # taken from a pack in which others have units
                return None
            hard = states.dtype == torch.bool
            there = states[first_unit]
            if governed is not None:
                there = torch.where(governed, there, True if hard else 1.0)
            if not len(element):
                return there
            if hard:
                return there.index_put((element[~states[unit]],), there.new_tensor(False))
            return there.scatter_reduce(0, element, states[unit], "prod")

        return read

    def take(self, elements: Spans, index: Tensor, unit_shift: Tensor) -> Governors:
        """The governors of instances `index`: `elements` are their spans, and their units move by `unit_shift`."""
        positions, element_ptr, element_shift = elements
        first = self.first[positions]
        if self.some:
            new = first + unit_shift[owners(element_ptr)]
            first = new if self.every else torch.where(first < 0, first, new)
        pairs, ptr = self.further, torch.zeros_like(element_ptr)
        if pairs.numel():
            rows, ptr, _ = spans(self.ptr, index)
            owner = owners(ptr)
            pairs = pairs[:, rows] + torch.stack([element_shift[owner], unit_shift[owner]])
        return Governors(first, pairs, ptr, self.some, self.every)


class NewValues(NamedTuple):
    """New values of feature entries x[row, column], each there once its unit is; those of instance b are in ptr."""

    row: Tensor  # [c]
    column: Tensor  # [c]
    value: Tensor  # [c]
    unit: Tensor  # [c]
    ptr: Tensor  # [B + 1]

    def apply(self, x: Tensor, there: Tensor) -> Tensor:
        """Features [N, d] with the new values of units that are there [units]: bool, or soft in [0, 1]."""
        chosen = there[self.unit]
        if there.dtype != torch.bool and not x.is_floating_point():
            return x  # between two categories there is nothing
        if there.dtype == torch.bool:
            return x.index_put((self.row[chosen], self.column[chosen]), self.value[chosen].to(x.dtype))
        gain = chosen.to(x.dtype) * (self.value.to(x.dtype) - x[self.row, self.column])
        return x.index_put((self.row, self.column), gain, accumulate=True)


FLAGS = ("selectable", "required", "fixed", "left_out", "absent", "price")


@dataclass(frozen=True, eq=False)
class Units:
    """The units of all instances of a pack; those of instance b are `ptr[b]` to `ptr[b + 1]`.

    Flags are None where they hold for no unit (`selectable`: for all). A unit that is not `selectable` is never
    chosen; a `required` one always is; one that is `fixed` is left alone: the graph has it as it was under every
    intervention. One that is `left_out` could be chosen and is not looked at, so nothing is proved of its instance.
    What an `absent` unit governs is not in the graph at first, and is once the unit is edited.
    """

    ptr: Tensor  # [B + 1]
    edges: Governors
    entries: Governors
    changes: NewValues | None = None
    selectable: Tensor | None = None  # [units] bool
    required: Tensor | None = None  # [units] bool
    fixed: Tensor | None = None  # [units] bool
    left_out: Tensor | None = None  # [units] bool
    absent: Tensor | None = None  # [units] bool
    price: Tensor | None = None  # [units], what each unit adds to the size of a set; None: 1
    narrowed: Tensor | None = None  # [B] bool, instances of which some units are not even listed
    nodes: Governors | None = None  # of each node; None: none can go

    @property
    def count(self) -> int:
        """How many units there are."""
        return int(self.ptr[-1])

    @property
    def counts(self) -> Tensor:
        """How many units each instance has, [B]."""
        return self.ptr.diff()

    @property
    def owner(self) -> Tensor:
        """The instance of every unit."""
        return owners(self.ptr)

    def admissible(self, chosen: Tensor) -> Tensor:
        """A choice [units, bool] with what must not be chosen left out, and what must be put in."""
        for forbidden in self._forbidden():
            chosen = chosen & ~forbidden
        return chosen if self.required is None else chosen | self.required

    def admissible_mask(self, mask: Tensor) -> Tensor:
        """The same for soft masks in [0, 1]; a unit without a choice gets no gradient."""
        for forbidden in self._forbidden():
            mask = torch.where(forbidden, 0.0, mask)
        return mask if self.required is None else torch.where(self.required, 1.0, mask)

    def flagged(self, flags: Mapping[str, Tensor]) -> Units:
        """The same units with further flags, by their names."""
        return replace(self, **flags)  # type: ignore[arg-type]

    def _forbidden(self) -> list[Tensor]:
        flags = (None if self.selectable is None else ~self.selectable, self.fixed, self.left_out)
        return [flag for flag in flags if flag is not None]

    def there(self, states: Tensor) -> Tensor:
        """What of each unit is in the graph [units], bool or soft, given which ones are as they were at first.

        A unit that is left alone is as it was; an absent one is there if it is not.
        """
        if self.fixed is not None:
            states = torch.where(self.fixed, torch.ones_like(states), states)
        if self.absent is None:
            return states
        return states ^ self.absent if states.dtype == torch.bool else torch.where(self.absent, 1 - states, states)
