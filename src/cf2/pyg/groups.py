"""Masks of nodes and of columns: all entries of a node, or of a column, are one unit that goes or stays."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from cf2.methods.method import Chunk, Ranking
from cf2.packing import pointer


def grouped(chunk: Chunk, kind: MaskType) -> tuple[Chunk, Tensor]:
    """The chunk with all entries of a node (`object`) or a column as one unit; the new unit of each old one.

    The model is asked about whole nodes or columns, so a verdict on them is as true as one on single entries.
    """
    pack = chunk.pack
    owner = pack.batch[pack.entry_row]
    label = pack.entry_row if kind == MaskType.object else owner * pack.x.size(1) + pack.entry_column
    distinct, group = torch.unique(label, return_inverse=True)  # sorted, so instance after instance
    owner_of_group = owner.new_empty(len(distinct)).scatter(0, group, owner)
    groups = torch.bincount(owner_of_group, minlength=pack.size)
    edges = pack.units - pack.entry_ptr.diff()
    unit_ptr = pointer(edges + groups)
    new = torch.arange(pack.num_units, device=owner.device) + (unit_ptr - pack.unit_ptr)[:-1][pack.unit_owner]
    first = unit_ptr[:-1] + edges - pointer(groups)[:-1]
    new[pack.entry_unit] = group + first[owner]
    edge_unit = torch.where(pack.edge_unit < 0, pack.edge_unit, new[pack.edge_unit.clamp(min=0)])
    merged = replace(pack, edge_unit=edge_unit, entry_unit=new[pack.entry_unit], unit_ptr=unit_ptr)
    return replace(chunk, pack=merged), new


def spread(ranking: Ranking, new: Tensor) -> Ranking:
    """A ranking of groups as one of entries: each has the score and the choice of its group."""
    return replace(ranking, scores=ranking.scores[new], selected=ranking.selected[new])
