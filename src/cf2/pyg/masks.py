"""Explanations as torch_geometric's masks, with their verdicts beside them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.explain import Explanation as Masks
from torch_geometric.explain import HeteroExplanation as TypedMasks
from torch_geometric.explain.config import ExplainerConfig, MaskType
from torch_geometric.visualization import visualize_graph

from cf2.errors import require
from cf2.graphs.data import edges_of, is_matrix
from cf2.options import EdgeType
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations

_UNITS = {MaskType.object: "node_features", MaskType.attributes: "features", MaskType.common_attributes: "columns"}


def units_for(config: ExplainerConfig) -> tuple[str, ...]:
    """The kinds of unit that torch_geometric's types of masks stand for."""
    edges = () if config.edge_mask_type is None else ("edges",)
    return edges if config.node_mask_type is None else (*edges, _UNITS[config.node_mask_type])


def plain_edges(edges: Any) -> Any:
    """What is passed as `edge_index`, or that by type, with a matrix (`adj_t`) as the columns of its entries."""
    if isinstance(edges, Mapping):
        return {kind: plain_edges(ends) for kind, ends in edges.items()}
    if not is_matrix(edges):
        return edges
    device = edges.device() if callable(edges.device) else edges.device  # a method of torch_sparse's
    return edges_of(edges, "the graph").to(device)


@dataclass(frozen=True)
class Layout:
    """What the masks look like: for which kinds of unit and how many edges, and whether they hold sets or scores."""

    units: tuple[str, ...]
    num_edges: int
    soft: bool


class Verified:
    """The verdicts of explanations, on whatever holds their masks."""

    _found: Explanations

    @property
    def cf2(self) -> Explanations:
        """The explanations themselves, one per node, pair or graph that was asked for."""
        return self._found  # torch_geometric makes a list of a sequence that is not private

    @property
    def sufficient(self) -> bool | None:
        """Whether the model says the same of each set alone."""
        return _all([one.sufficient for one in self.cf2])

    @property
    def necessary(self) -> bool | None:
        """Whether the model says something else without each set."""
        return _all([one.necessary for one in self.cf2])

    @property
    def minimal(self) -> bool | None:
        """Whether no single unit of any set can go."""
        return _all([one.minimal for one in self.cf2])

    @property
    def optimal(self) -> bool | None:
        """Whether each set is proved to be the smallest."""
        return _all([one.optimal for one in self.cf2])


class VerifiedHeteroExplanation(Verified, TypedMasks):  # type: ignore[misc]
    """A torch_geometric HeteroExplanation whose masks were tried on really reduced graphs.

    Attributes
    ----------
    cf2 : cf2.Explanations
        One `cf2.Explanation` per node or pair that was asked for, in the order of `index`.
    edge_mask_dict : dict of Tensor
        By edge type, 1 for the edges that were chosen for any of them, 0 elsewhere; scores where they were asked for.
    node_mask_dict : dict of Tensor
        The same for features, by node type; the shape is that of the `node_mask_type`.
    sufficient, necessary, minimal, optimal : bool or None
        True where it holds for every one, False where one fails, None where one was not checked.
    """

    def each(self) -> list[VerifiedHeteroExplanation]:
        """One explanation per node, pair or graph that was asked for, with masks and verdicts of its own."""
        x, edge_index = self.collect("x"), self.collect("edge_index")
        parts = []
        for one in self.cf2:
            part = copy.copy(self)
            part.index = torch.tensor([one.key])
            parts.append(fill_types(part, x, edge_index, replace(self.cf2, items=(one,)), self._layout))
        return parts

    def set_value_dict(self, key: str, value_dict: Mapping[Any, Any]) -> VerifiedHeteroExplanation:
        """As torch_geometric's, with edges that are a matrix (`adj_t`) as the columns that the masks are of."""
        value_dict = plain_edges(value_dict) if key == "edge_index" else value_dict
        held: VerifiedHeteroExplanation = super().set_value_dict(key, value_dict)
        return held

    def _apply_masks(
        self, node_mask_dict: dict[str, Tensor], edge_mask_dict: dict[EdgeType, Tensor]
    ) -> VerifiedHeteroExplanation:
        """The subgraph; a node at the end of a kept edge stays, even if none of its features was chosen."""
        nodes = {name: mask.clone() for name, mask in node_mask_dict.items() if len(mask) == self[name].num_nodes}
        for (src, rel, dst), mask in edge_mask_dict.items():
            tail, head = self[src, rel, dst].edge_index[:, mask]
            for name, ends in ((src, tail), (dst, head)):
                if name in nodes:
                    nodes[name][ends] = True
        cut: VerifiedHeteroExplanation = super()._apply_masks(nodes, edge_mask_dict)
        return cut


def fill_types(
    out: VerifiedHeteroExplanation,
    x: Mapping[str, Tensor],
    edge_index: Mapping[EdgeType, Tensor],
    found: Explanations,
    layout: Layout,
) -> VerifiedHeteroExplanation:
    """Write the explanations and their masks onto `out`, by type."""
    out.__dict__["_layout"], out.__dict__["_found"] = layout, found
    shown = [replace(one, scores=_values(one, layout.soft)) for one in found]
    for kind in layout.units:
        if kind == "edges":
            masks = [one.edge_mask(edge_index, soft=True) for one in shown]
            for name, ends in edge_index.items():
                union = np.max([mask[name] for mask in masks], axis=0)
                out[name].edge_mask = torch.from_numpy(union).to(ends.device)
        else:
            for node_type, value in x.items():
                node_mask = _typed_node_mask(shown, kind, node_type, *value.shape)
                out[node_type].node_mask = torch.from_numpy(node_mask).to(value.device)
    return out


def _typed_node_mask(shown: list[Explanation], kind: str, name: str, nodes: int, features: int) -> np.ndarray:
    """The mask of one node type, of the shape that `_node_mask` has for a graph without types."""
    mask = np.zeros((1 if kind == "columns" else nodes, 1 if kind == "node_features" else features), dtype=np.float32)
    for one in shown:
        types, rows = one.types, one.units.where(kind)
        assert types is not None
        node, column = one.units.ids[rows].T
        place = types.nodes.index(name)
        mine = (one.units.types[rows] == place) if kind == "columns" else types.of(node) == place
        local = np.zeros_like(node) if kind == "columns" else node - types.starts[place]
        column = np.maximum(column, 0)
        np.maximum.at(mask, (local[mine], column[mine]), one.scores[rows[mine]])
    return mask


class VerifiedExplanation(Verified, Masks):  # type: ignore[misc]
    """A torch_geometric Explanation whose masks were tried on really reduced graphs.

    Attributes
    ----------
    cf2 : cf2.Explanations
        One `cf2.Explanation` per node, pair or graph that was asked for, in the order of `index`.
    edge_mask : Tensor, shape [edges]
        1 for the edges that were chosen for any of them, 0 elsewhere; scores where they were asked for.
    edge_masks : Tensor of bool, shape [edges, asked]
        The chosen edges of each, side by side.
    node_mask : Tensor, shape [nodes, features], [nodes, 1] or [1, features]
        The same as `edge_mask` for features; the shape is that of the `node_mask_type`.
    sufficient, necessary, minimal, optimal : bool or None
        True where it holds for every one, False where one fails, None where one was not checked.
    """

    @property
    def edge_index(self) -> Any:
        """The edges that the masks are of; a matrix (`adj_t`) is kept as the columns of its entries."""
        return self._store.get("edge_index")

    @edge_index.setter
    def edge_index(self, edges: Any) -> None:
        self._store["edge_index"] = plain_edges(edges)

    def each(self) -> list[VerifiedExplanation]:
        """One explanation per node or graph that was asked for, with masks and verdicts of its own."""
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
            parts.append(fill(part, replace(self.cf2, items=(one,)), self._layout))
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


def fill(out: VerifiedExplanation, found: Explanations, layout: Layout) -> VerifiedExplanation:
    """Write the explanations and their masks onto `out`, which holds the graph."""
    out._layout, out._found = layout, found
    device, ends = out.edge_index.device, out.edge_index.cpu().numpy()
    shown = [replace(one, scores=_values(one, layout.soft)) for one in found]
    for kind in layout.units:
        if kind == "edges":
            union = np.max([one.edge_mask(ends, soft=True) for one in shown], axis=0)
            out.edge_mask = torch.from_numpy(union).to(device)
            chosen = np.stack([one.edge_mask(ends) for one in found], axis=1)
            out.edge_masks = torch.from_numpy(chosen > 0).to(device)
        else:
            out.node_mask = torch.from_numpy(_node_mask(shown, kind, *out.x.shape)).to(device)
    return out


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _values(one: Explanation, soft: bool) -> np.ndarray:
    """What a mask holds of each unit: whether it was chosen, or a score above 0.5 where it was.

    A chosen unit gets 0.5 + s / 2 and any other s / 2, so that a threshold of 0.5 gives back the set and the
    largest k are chosen ones first.
    """
    if not soft:
        return one.selected.astype(np.float32)
    s = np.clip(one.scores, 0.0, 1.0)
    values: np.ndarray = np.where(one.selected, 0.5 + np.maximum(s, 1e-3) / 2, s / 2).astype(np.float32)
    return values


def _node_mask(shown: list[Explanation], kind: str, nodes: int, features: int) -> np.ndarray:
    """[nodes, features], [nodes, 1] or [1, features]: the largest value of each unit of a kind."""
    mask = np.zeros((1 if kind == "columns" else nodes, 1 if kind == "node_features" else features), dtype=np.float32)
    for one in shown:
        node, column = one.units.of(kind).T  # -1 where a unit is no single node or column: the only place there is
        np.maximum.at(mask, (node, column), one.scores[one.units.where(kind)])
    return mask
