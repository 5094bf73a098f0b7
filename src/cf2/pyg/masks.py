"""Explanations as torch_geometric's masks, with their verdicts beside them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch_geometric.explain import Explanation as Masks
from torch_geometric.explain.config import MaskType
from torch_geometric.visualization import visualize_graph

from cf2.errors import require
from cf2.explanation import Explanation, Explanations


@dataclass(frozen=True)
class Layout:
    """What the masks look like: which there are, for how many edges, and whether they hold sets or scores."""

    edges: bool
    nodes: MaskType | None
    soft: bool
    num_edges: int


class VerifiedExplanation(Masks):  # type: ignore[misc]
    """A torch_geometric Explanation whose masks were tried on really reduced graphs.

    `cf2` holds one `cf2.Explanation` for each node or graph that was asked for; `edge_masks` [edges, asked]
    their edges side by side, `edge_mask` and `node_mask` the union. `sufficient`, `necessary`, `minimal` and
    `optimal` are True where they hold for every one, False where one fails, None where one was not checked.
    """

    @property
    def sufficient(self) -> bool | None:
        return _all([one.sufficient for one in self.cf2])

    @property
    def necessary(self) -> bool | None:
        return _all([one.necessary for one in self.cf2])

    @property
    def minimal(self) -> bool | None:
        return _all([one.minimal for one in self.cf2])

    @property
    def optimal(self) -> bool | None:
        return _all([one.optimal for one in self.cf2])

    def each(self) -> list[VerifiedExplanation]:
        """One explanation for each node or graph that was asked for, with masks and verdicts of its own."""
        require(
            self.edge_index.size(1) == self._layout.num_edges,
            "Expected the explanation of the whole graph",
            got="a subgraph of it",
            do="Call each() first, then get_explanation_subgraph() of each.",
        )
        parts = []
        for one in self.cf2:
            part = copy.copy(self)
            part.index = torch.tensor([one.key])
            parts.append(fill(part, [one], self._layout))
        return parts

    def _apply_masks(self, node_mask: Tensor | None = None, edge_mask: Tensor | None = None) -> VerifiedExplanation:
        """The subgraph; a node at the end of a kept edge stays, even if none of its features was chosen."""
        if node_mask is not None and self.node_mask.size(0) != self.num_nodes:
            node_mask = None  # a mask of columns is about no node in particular
        if node_mask is not None and edge_mask is not None:
            node_mask = node_mask.clone()
            node_mask[self.edge_index[:, edge_mask].flatten()] = True
        cut: VerifiedExplanation = super()._apply_masks(node_mask, edge_mask)
        return cut

    def visualize_graph(
        self, path: str | None = None, backend: str | None = None, node_labels: list[str] | None = None
    ) -> None:
        """Draw the edges by their mask, also where the mask is the same everywhere."""
        mask = self.get("edge_mask")
        if mask is None or bool(mask.amin() < mask.amax()):
            super().visualize_graph(path, backend, node_labels)
        else:  # torch_geometric divides by the range of the mask, which is 0
            visualize_graph(self.edge_index[:, mask > 0], None, path, backend, node_labels)


def fill(out: VerifiedExplanation, found: Iterable[Explanation], layout: Layout) -> VerifiedExplanation:
    """Write the explanations and their masks onto `out`, which holds the graph."""
    items = tuple(found)
    out._layout = layout
    out.cf2 = Explanations(items, {"method": items[0].method})
    device = out.edge_index.device
    if layout.edges:
        ends = out.edge_index.cpu().numpy()
        columns = [_values(one, layout.soft).edge_mask(ends, soft=True) for one in items]
        out.edge_mask = torch.from_numpy(np.max(columns, axis=0)).to(device)
        chosen = np.stack([one.edge_mask(ends) for one in items], axis=1)
        out.edge_masks = torch.from_numpy(chosen > 0).to(device)
    if layout.nodes is not None:
        out.node_mask = _node_mask(items, layout, out.x)
    return out


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _values(one: Explanation, soft: bool) -> Explanation:
    """The explanation with the values of its mask for scores: the set, or scores above 0.5 where chosen.

    A chosen unit gets 0.5 + s / 2 and any other s / 2, so that a threshold of 0.5 gives back the set and the
    largest k are chosen ones first.
    """
    chosen = one.selected.astype(np.float32)
    if soft:
        s = np.clip(one.scores, 0.0, 1.0)
        chosen = np.where(one.selected, 0.5 + np.maximum(s, 1e-3) / 2, s / 2).astype(np.float32)
    return replace(one, scores=chosen)


def _node_mask(items: Iterable[Explanation], layout: Layout, x: Tensor) -> Tensor:
    """[nodes, features], [nodes, 1] or [1, features]: the largest value of any entry a place stands for."""
    nodes, features = x.shape
    mask = np.zeros(
        (
            1 if layout.nodes == MaskType.common_attributes else nodes,
            1 if layout.nodes == MaskType.object else features,
        ),
        dtype=np.float32,
    )
    for one in items:
        row, column = one.unit_features.T
        row = row if mask.shape[0] == nodes else np.zeros_like(row)
        column = column if mask.shape[1] == features else np.zeros_like(column)
        np.maximum.at(mask, (row, column), _values(one, layout.soft).feature_scores)
    return torch.from_numpy(mask).to(x.device)
