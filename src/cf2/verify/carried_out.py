"""Many trials of whole instances as one pack in which what is gone is not there: what `Pack.take` and a removal give.

That is most of what a search asks for, so only what the model is handed is made.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cf2.core.packed_units import Governors, Units
from cf2.core.packing import Pack, owners, pointer, spans


def only_edges(pack: Pack) -> bool:
    """Whether what comes and goes are edges alone, each with one unit, of which none is absent at first."""
    units = pack.units
    plain = not units.edges.further.numel() and not len(pack.entry_row)
    return bool(plain and units.absent is None and units.changes is None and units.edges.some)


class CarriedOut:
    """Packs of trials, for packs of which `only_edges` come and go."""

    def __init__(self, pack: Pack) -> None:
        first = pack.units.edges.first
        self.pack = pack
        self.unit = torch.where(first < 0, first, first - pack.units.ptr[:-1][owners(pack.edge_ptr)])  # of its instance

    def packed(self, rows: Tensor, states: Tensor) -> Pack:
        """Instances `rows` [R] in which the units with a state [R, U, bool] are there, without units of their own."""
        pack, count = self.pack, len(rows)
        nodes, node_ptr, shift = spans(pack.node_ptr, rows)
        columns, ptr, _ = spans(pack.edge_ptr, rows)
        owner, unit = owners(ptr), self.unit[columns]
        there = states[owner, unit]
        stay = (there if pack.units.edges.every else there | (unit < 0)).nonzero().flatten()
        columns, owner = columns[stay], owner[stay]
        none, zero = rows.new_zeros((2, 0)), rows.new_zeros(count + 1)
        of = {"node": nodes, "edge": columns, "graph": rows}
        return replace(
            pack,
            x=pack.x[nodes] if pack.sparse is None else pack.x[:1].expand(len(nodes), -1),
            sparse=None if pack.sparse is None else pack.sparse.take(nodes),
            edge_index=pack.edge_index[:, columns] + shift[owner],
            units=Units(
                zero,
                Governors(torch.full_like(columns, -1), none, zero, some=False, every=False),
                Governors(none[0], none, zero, some=False, every=False),
            ),
            targets=pack.targets[rows] + shift[:, None],
            node_ptr=node_ptr,
            edge_ptr=pointer(torch.bincount(owner, minlength=count)),
            entry_ptr=zero,
            keys=pack.keys[rows],
            extras={name: (kind, value[of[kind]]) for name, (kind, value) in pack.extras.items()},
        )
