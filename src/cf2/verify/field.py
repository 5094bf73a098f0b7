"""A trial's own receptive field: what the target can still see once a set was carried out, and nothing else.

Of a node or a pair, a model looks some hops along the edges that are there. With *only* S that is a few edges of
hundreds; without S it is what the removal has not cut off. The rule is that by which instances are cut from a graph,
so a trial gives the same output on its field as on the whole instance. Where nothing is known about how far a model
looks, the field is all that is connected with the target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cf2.core.packed_units import Governors, Units
from cf2.core.packing import Pack, owners, pointer, spans
from cf2.verify.cache import Sums


@dataclass(frozen=True, eq=False)
class Field:
    """What R trials can see: nodes and edge columns of the pack, each with the trial that sees it."""

    rows: Tensor  # [R], the instance of each trial
    nodes: Tensor  # [n], in the order of trials and then of nodes
    of_node: Tensor  # [n]
    columns: Tensor  # [e]
    of_column: Tensor  # [e]

    def take(self, trials: Tensor) -> Field:
        """Some of the trials, in ascending order."""
        place = torch.full_like(self.rows, -1)
        place[trials] = torch.arange(len(trials), device=trials.device)
        nodes, columns = place[self.of_node] >= 0, place[self.of_column] >= 0
        return Field(
            self.rows[trials],
            self.nodes[nodes],
            place[self.of_node[nodes]],
            self.columns[columns],
            place[self.of_column[columns]],
        )


def applies(pack: Pack) -> bool:
    """Whether trials of a pack have fields of their own: nodes are read, and what comes and goes are edges alone.

    Each edge goes with one unit, no feature entry does, and there is nothing that could be added.
    """
    units = pack.units
    plain = not units.edges.further.numel() and not len(pack.entry_row) and units.absent is None
    return bool(plain and pack.targets.size(1) and units.edges.some)


class Fields:
    """Finds the fields of trials of one pack, in time proportional to what they contain."""

    def __init__(self, pack: Pack, hops: int | None = None, direction: str = "both") -> None:
        self.pack, self.hops = pack, hops
        self.direction = "both" if hops is None else direction
        tail, head = pack.edge_index
        anchor, other = {"in": (head, tail), "out": (tail, head)}.get(
            self.direction, (torch.cat([head, tail]), torch.cat([tail, head]))
        )
        order = anchor.argsort(stable=True)
        self.ptr = pointer(torch.bincount(anchor, minlength=pack.x.size(0)))
        self.column = order % max(pack.edge_index.size(1), 1)
        self.other = other[order]
        shift = pack.units.ptr[:-1][owners(pack.edge_ptr)]
        first = pack.units.edges.first
        self.unit = torch.where(first < 0, first, first - shift)  # in its own instance
        self.width = int(pack.node_ptr.diff().max())
        self.seen = Sums(pack.edge_index.size(1), 1, first.device)

    def find(self, rows: Tensor, states: Tensor) -> Field:
        """The fields of trials [R] of instances `rows`, in which the units with a state [R, U, bool] are there."""
        pack, width = self.pack, self.width
        base = pack.node_ptr[rows]
        inside = torch.zeros(len(rows) * width, dtype=torch.bool, device=rows.device)
        trial = torch.arange(len(rows), device=rows.device).repeat_interleave(pack.targets.size(1))
        places = torch.unique(trial * width + (pack.targets[rows].flatten() - base[trial]))
        inside[places] = True
        columns, of_column = [rows[:0]], [rows[:0]]
        hop = 0
        while len(places) and (self.hops is None or hop < self.hops):
            hop += 1
            trial = places // width
            at, ptr, _ = spans(self.ptr, places - trial * width + base[trial])
            trial = trial[owners(ptr)]
            column = self.column[at]
            unit = self.unit[column]
            there = (states[trial, unit] | (unit < 0)).nonzero().flatten()
            column, trial = column[there], trial[there]
            columns.append(column)
            of_column.append(trial)
            reached = trial * width + (self.other[at[there]] - base[trial])
            places = torch.unique(reached[~inside[reached]])
            inside[places] = True
        column, trial = torch.cat(columns), torch.cat(of_column)
        if self.direction == "both":  # an edge is met from both of its ends
            total = max(pack.edge_index.size(1), 1)
            both = torch.unique(trial * total + column)
            trial, column = both // total, both % total
        found = inside.nonzero().flatten()
        of_node = found // width
        return Field(rows, found - of_node * width + base[of_node], of_node, column, trial)

    def sums(self, field: Field) -> Tensor:
        """What each trial sees, as sums for a key [R, 4]."""
        return self.seen.of_lists(field.of_column, field.columns, len(field.rows))

    def packed(self, field: Field) -> Pack:
        """The fields as a pack without units, in which what is gone is not there."""
        pack, count = self.pack, len(field.rows)
        start = torch.arange(count, device=field.rows.device) * self.width - pack.node_ptr[field.rows]
        local = field.rows.new_zeros(count * self.width)
        local[field.nodes + start[field.of_node]] = torch.arange(len(field.nodes), device=local.device)
        none, zero = field.rows.new_zeros((2, 0)), field.rows.new_zeros(count + 1)
        rows = {"node": field.nodes, "edge": field.columns, "graph": field.rows}
        return replace(
            pack,
            x=pack.x[field.nodes] if pack.sparse is None else pack.x[:1].expand(len(field.nodes), -1),
            sparse=None if pack.sparse is None else pack.sparse.take(field.nodes),
            edge_index=local[pack.edge_index[:, field.columns] + start[field.of_column]],
            units=Units(
                zero,
                Governors(torch.full_like(field.columns, -1), none, zero, some=False, every=False),
                Governors(none[0], none, zero, some=False, every=False),
            ),
            targets=local[pack.targets[field.rows] + start[:, None]],
            node_ptr=pointer(torch.bincount(field.of_node, minlength=count)),
            edge_ptr=pointer(torch.bincount(field.of_column, minlength=count)),
            entry_ptr=zero,
            keys=pack.keys[field.rows],
            extras={name: (kind, value[rows[kind]]) for name, (kind, value) in pack.extras.items()},
        )
