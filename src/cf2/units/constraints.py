"""What a set must keep to beside its tests: which units may be chosen, and which sets of them.

Constraints on single units are flags (`flags`): an edge to keep is left alone, a forbidden one is never chosen, and one
kind of edit may cost more than another. Constraints on whole sets are asked of candidate sets, packed: two changes of
one feature exclude each other, a set may have to be connected, and its result may have to be valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import CF2Error, require
from cf2.graphs.graph import Graph, Instance, edge_positions
from cf2.options import Spec
from cf2.sets.trials import Constraints
from cf2.units.edits import EDGE_KINDS, edit_of, edited, grouped, pairs_by_key
from cf2.units.kinds import InstanceUnits, owners
from cf2.units.molecules import Valences, check_orders, molecule_check
from cf2.units.packs import Pack

Valid = Callable[[Data], bool]
JOINABLE = (*EDGE_KINDS, "groups", "nodes")  # units of which it can be said whether they are connected


def flags(
    spec: Spec, instances: Sequence[Instance], tables: Sequence[InstanceUnits], graph: Graph | None = None
) -> dict[str, Tensor]:
    """The flags of all units of some instances (of one graph, if that is given), by their names in `Units`."""
    found: dict[str, Tensor] = {}
    whole = None if graph is None or spec.groups is None else grouped(graph.whole(0), spec.groups)
    if spec.keep is not None:
        found["fixed"] = torch.cat([_governing(i, t, spec.keep, whole) for i, t in zip(instances, tables)])
    if spec.forbid is not None:
        found["selectable"] = ~torch.cat([_governing(i, t, spec.forbid, whole) for i, t in zip(instances, tables)])
    if spec.costs:
        costs = dict(spec.costs)
        edits = [edit_of(name) for name in tables[0].names]
        by_kind = torch.tensor([float(costs.get(edit.name, edit.cost)) for edit in edits])
        found["price"] = torch.cat([by_kind[table.kind] for table in tables])
    return found


def _governing(instance: Instance, table: InstanceUnits, given: Any, whole: Instance | None) -> Tensor:
    """Which units [u] govern one of the edges that an option names."""
    hit = torch.zeros(table.count, dtype=torch.bool)
    pairs = pairs_by_key(given, instance.key)
    if pairs is None or not len(pairs):
        return hit
    first, (element, unit) = table.edges
    columns = _named(instance, pairs, instance.directed)
    governors = torch.cat([first[columns & (first >= 0)], unit[columns[element]]])
    hit[governors] = True
    # A node goes with its edges, also with those out of sight, and so does a group.
    hit |= table.of_kind("nodes") & torch.isin(table.ids[:, 0], pairs)
    if whole is not None and whole.groups is not None:
        named = whole.groups[_named(whole, pairs, instance.directed)]
        hit |= table.of_kind("groups") & torch.isin(table.ids[:, 0], named)
    return hit


def _named(instance: Instance, pairs: Tensor, directed: bool) -> Tensor:
    """Which columns [e] are named as pairs of nodes [n, 2]."""
    ends = instance.node_ids[instance.edge_index].t()
    if not directed:
        ends, pairs = ends.sort(1).values, pairs.sort(1).values
    return edge_positions(pairs.t(), ends.t()) >= 0


@dataclass(eq=False)
class SetConstraints(Constraints):
    """The constraints on whole sets of the instances of one pack."""

    pack: Pack
    instances: Sequence[Instance]
    tables: Sequence[InstanceUnits]
    connected: bool = False
    valid: Valid | None = None
    valences: Valences | None = None  # of molecules, what their atoms can bear
    choice: Tensor | None = field(init=False)
    _seen: dict[tuple[int, bytes], bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.choice = choices_of(self.tables, self.pack)
        self._choices = 0 if self.choice is None or not self.choice.numel() else int(self.choice.max()) + 1
        if self.connected:
            wrong = ", ".join(name for name in self.tables[0].names if name not in JOINABLE)
            expected = f"Expected units that can be connected, {', '.join(JOINABLE)}, for connected=True"
            require(not wrong, expected, got=wrong)
            self._node = _nodes_of_units(self.instances, self.tables).to(self.pack.node_ptr.device)

    def take(self, rows: Tensor) -> SetConstraints:
        """The rules of some instances, which may repeat."""
        picked, pack = rows.tolist(), self.pack.take(rows)
        units = int(pack.units.counts.max()) if picked else 0
        valences = None if self.valences is None else self.valences.take(rows, units)
        instances, tables = ([known[row] for row in picked] for known in (self.instances, self.tables))
        return SetConstraints(pack, instances, tables, self.connected, self.valid, valences)

    def within(self, pack: Pack) -> SetConstraints:
        """The same rules for a pack in which fewer units may be chosen: none of the others can mend an atom."""
        may, valences = _selectable(pack), self.valences
        if valences is not None:
            valences = replace(valences, removes=valences.removes & may, light=valences.light & may)
        return replace(self, pack=pack, valences=valences)

    def allow(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether candidate sets [R, U] of instances `rows` keep to the rules that need no model."""
        good = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        if self.choice is not None:
            good &= ~self._twice(rows, sets)
        if self.valences is not None:
            good &= self.valences.possible(rows, sets)
        if self.connected:
            todo = good.nonzero().flatten()
            good[todo] = self._one_piece(rows[todo], sets[todo])
        return good

    def movable(self, rows: Tensor, sets: Tensor, *, alone: bool = False) -> Tensor:
        """Which single units [R, U] can be added or dropped: none that changes a feature twice, or overloads an atom.

        What `mended` can make room for is movable as well, unless it must do `alone`.
        """
        free = torch.ones_like(sets)
        if self.valences is not None:
            free = self.valences.fitting(rows, sets, 0) if alone else self.valences.fitting(rows, sets)
        if self.choice is None:
            return free
        choice = self.choice[rows]
        owner, unit = (sets & (choice >= 0)).nonzero(as_tuple=True)
        taken = torch.zeros(len(rows), self._choices + 1, dtype=torch.bool, device=rows.device)
        taken[owner, choice[owner, unit]] = True
        return free & ~(taken.gather(1, choice.clamp(min=0)) & (choice >= 0) & ~sets)

    def mended(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Sets [R, U] with what has to be removed as well for their atoms to bear their bonds."""
        return sets if self.valences is None else self.valences.mended(rows, sets)

    def confirm(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether the results of sets that pass everything else are valid; asked last, and once for each."""
        if self.valid is None:
            return super().confirm(rows, sets)
        valid = [self._is_valid(row, chosen) for row, chosen in zip(rows.tolist(), sets)]
        return torch.tensor(valid, dtype=torch.bool, device=rows.device)

    def _is_valid(self, row: int, chosen: Tensor) -> bool:
        assert self.valid is not None
        table, instance = self.tables[row], self.instances[row]
        chosen = chosen[: table.count].cpu()
        seen = (row, chosen.numpy().tobytes())
        if seen not in self._seen:
            graph = edited(instance, table, chosen)
            graph.before = edited(instance, table, torch.zeros_like(chosen))
            try:
                self._seen[seen] = bool(self.valid(graph))
            except CF2Error:
                raise
            except Exception as error:  # of the user's own function
                got = f"{type(error).__name__}: {error}"
                raise CF2Error("Expected `valid` to say whether a graph is valid", got=got) from error
        return self._seen[seen]

    def _twice(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether sets hold two changes of one feature."""
        assert self.choice is not None
        choice = self.choice[rows]
        owner, unit = (sets & (choice >= 0)).nonzero(as_tuple=True)
        # A set and a choice as one number: after sorting, what is there twice stands side by side.
        code = (owner * self._choices + choice[owner, unit]).sort().values
        bad = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        bad[code[1:][code[1:] == code[:-1]] // max(self._choices, 1)] = True
        return bad

    def _one_piece(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether what sets choose is connected, and, for a node, joined to it."""
        if not len(rows):
            return rows.new_zeros(0, dtype=torch.bool)
        pack, count = self.pack.take(rows), len(rows)
        valid = torch.arange(sets.size(1), device=rows.device)[None] < pack.units.counts[:, None]
        chosen = sets[valid]
        governed = pack.units.edges.first >= 0
        inside, absent = pack.units.edges.present(chosen), pack.units.absent
        if absent is not None and inside is not None:  # an added edge is chosen without the nodes at its ends
            others, none = pack.units.edges.present(chosen | ~absent), pack.units.edges.present(~absent)
            assert others is not None
            assert none is not None
            inside = inside | (others & ~none)
        columns = pack.edge_index[:, governed if inside is None else governed & inside]
        # All sets at once, as one graph: a set is in one piece if what it touches has one component. An instance that
        # was taken again has its nodes and units elsewhere in the pack, hence the shift.
        shift = pack.node_ptr[:-1] - self.pack.node_ptr[rows]
        spans = torch.repeat_interleave(self.pack.units.ptr[rows] - pack.units.ptr[:-1], pack.units.counts)
        node = self._node[torch.arange(len(chosen), device=rows.device) + spans]
        is_node = (node >= 0) & chosen
        alone = (node + shift[owners(pack.units.ptr)])[is_node]
        touched = torch.cat([columns.flatten(), alone, pack.targets.flatten()]).cpu().numpy()
        size = int(pack.node_ptr[-1])
        ends = columns.cpu().numpy()
        matrix = coo_matrix((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(size, size))
        _, label = connected_components(matrix, directed=False)
        batch = pack.batch.cpu().numpy()
        pieces = np.unique(np.stack([batch[touched], label[touched]]), axis=1)[0]
        return torch.from_numpy(np.bincount(pieces, minlength=count) <= 1).to(rows.device)


def choices_of(tables: Sequence[InstanceUnits], pack: Pack) -> Tensor | None:
    """The choice that each change belongs to [B, U], -1 for other units; None where there is no change."""
    if all(table.changes is None for table in tables):
        return None
    found = torch.full((len(tables), max(table.count for table in tables)), -1, dtype=torch.long)
    for row, table in enumerate(tables):
        if table.changes is not None:
            found[row, : table.count][table.of_kind("changes")] = table.changes.choice
    return found.to(pack.node_ptr.device)


def _nodes_of_units(instances: Sequence[Instance], tables: Sequence[InstanceUnits]) -> Tensor:
    """The local node of every unit that is one, shifted to its place in the pack; -1 for other units."""
    parts, start = [], 0
    for instance, table in zip(instances, tables):
        node = torch.full((table.count,), -1, dtype=torch.long)
        is_node = table.of_kind("nodes")
        node[is_node] = torch.searchsorted(instance.node_ids, table.ids[is_node, 0]) + start
        parts.append(node)
        start += len(instance.node_ids)
    return torch.cat(parts)


def constraints_for(
    spec: Spec, pack: Pack, instances: Sequence[Instance], tables: Sequence[InstanceUnits], valid: Valid | None = None
) -> SetConstraints | None:
    """The constraints on sets that a request asks for, None where every set may be chosen."""
    molecules = spec.valid == "molecule"
    check = molecule_check(spec.atoms, spec.charges) if molecules else valid
    for instance in instances if molecules else ():
        check_orders(instance)
    changes = any(table.changes is not None for table in tables)
    if not (spec.connected or check is not None or changes):
        return None
    valences = None
    if molecules and spec.atoms:
        valences = Valences.of(spec.atoms, instances, tables, _selectable(pack), spec.charges)
    return SetConstraints(pack, instances, tables, spec.connected, check, valences)


def _selectable(pack: Pack) -> Tensor:
    """Which units may be chosen [B, U]."""
    counts = pack.units.counts
    valid = torch.arange(int(counts.max()) if len(counts) else 0, device=counts.device)[None] < counts[:, None]
    may = torch.zeros_like(valid)
    may[valid] = pack.units.admissible(torch.ones_like(pack.units.owner, dtype=torch.bool))
    return may
