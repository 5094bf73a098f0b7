"""Explanations as torch_geometric's masks, with their verdicts beside them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

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


def _verdict(name: str, meaning: str) -> property:
    def holds(explanation: Verified) -> bool | None:
        values = [getattr(e, name) for e in explanation.cf2]
        if False in values:
            return False
        return None if None in values else True

    return property(holds, doc=meaning)


class Verified:
    """The verdicts of explanations, on whatever holds their masks."""

    @property
    def cf2(self) -> Explanations:
        """The explanations, one per requested node, pair or graph."""
        explanations: Explanations = self.__dict__["_explanations"]
        return explanations

    sufficient = _verdict("sufficient", "Whether each set alone keeps the prediction.")
    necessary = _verdict("necessary", "Whether the prediction changes without each set.")
    minimal = _verdict("minimal", "Whether no single unit of any set can be left out.")
    optimal = _verdict("optimal", "Whether each set is proved to be the smallest.")

    def each(self) -> list[Self]:
        """One explanation per requested node, pair or graph, with its own masks and verdicts."""
        layout: Layout = self.__dict__["_layout"]
        require(
            self.num_edges == layout.num_edges,  # type: ignore[attr-defined]
            "Expected the explanation of the whole graph",
            got="a subgraph of it",
            do="Call each() first, then get_explanation_subgraph() on each result.",
        )
        parts = []
        for e in self.cf2:
            part: Any = copy.copy(self)
            part.index = torch.tensor([e.key])
            parts.append(part.filled(replace(self.cf2, items=(e,)), layout))
        return parts

    def filled(self, explanations: Explanations, layout: Layout) -> Self:
        """This, which holds the graph, with the explanations and their masks."""
        # Not as attributes: torch_geometric would make a list of the explanations.
        self.__dict__["_explanations"], self.__dict__["_layout"] = explanations, layout
        shown = [replace(e, scores=_values(e, layout.soft)) for e in explanations]
        for kind in layout.units:
            if kind == "edges":
                self._fill_edges(shown)
                continue
            for store in self.node_stores:  # type: ignore[attr-defined]
                mask = _node_mask(shown, kind, store.x, store._key)
                store.node_mask = torch.from_numpy(mask).to(store.x.device)
        return self

    def _fill_edges(self, shown: list[Explanation]) -> None:
        stores: Any = self.edge_stores  # type: ignore[attr-defined]
        typed = stores[0]._key is not None
        edge_index = {store._key: store.edge_index for store in stores} if typed else stores[0].edge_index
        masks = [e.edge_mask(edge_index, soft=True) for e in shown]
        for store in stores:
            union = np.max([mask[store._key] if typed else mask for mask in masks], axis=0)
            store.edge_mask = torch.from_numpy(union).to(store.edge_index.device)


class VerifiedExplanation(Verified, Masks):  # type: ignore[misc]
    """A torch_geometric Explanation whose masks were verified on reduced graphs.

    Attributes
    ----------
    cf2 : cf2.Explanations
        One `cf2.Explanation` per requested node, pair or graph, in the order of `index`.
    edge_mask : Tensor, shape [edges]
        1 for the edges chosen for any of them, 0 elsewhere; with `soft=True`, scores.
    edge_masks : Tensor of bool, shape [edges, asked]
        The chosen edges of each explanation, one column each.
    node_mask : Tensor, shape [nodes, features], [nodes, 1] or [1, features]
        The same as `edge_mask` for features; the shape is that of the `node_mask_type`.
    sufficient, necessary, minimal, optimal : bool or None
        True if it holds for all, False if one fails, None if one was not checked.
    """

    @property
    def edge_index(self) -> Any:
        """The edges that the masks are of; a matrix (`adj_t`) is kept as the columns of its entries."""
        return self._store.get("edge_index")

    @edge_index.setter
    def edge_index(self, edges: Any) -> None:
        self._store["edge_index"] = plain_edges(edges)

    def _fill_edges(self, shown: list[Explanation]) -> None:
        super()._fill_edges(shown)
        chosen = np.stack([e.edge_mask(self.edge_index) for e in shown], axis=1)
        self.edge_masks = torch.from_numpy(chosen > 0).to(self.edge_index.device)

    def _apply_masks(self, node_mask: Tensor | None = None, edge_mask: Tensor | None = None) -> VerifiedExplanation:
        """The subgraph; a node at the end of a kept edge stays, even if none of its features was chosen."""
        if node_mask is not None and self.node_mask.size(0) != self.num_nodes:
            node_mask = None  # a mask of columns is about no node in particular
        if node_mask is not None and edge_mask is not None:
            node_mask = node_mask.clone()
            node_mask[self.edge_index[:, edge_mask].flatten()] = True
        subgraph: VerifiedExplanation = super()._apply_masks(node_mask, edge_mask)
        return subgraph

    def visualize_graph(
        self, path: str | None = None, backend: str | None = None, node_labels: list[str] | None = None
    ) -> None:
        """Draw the edges by their mask, also where the mask is the same everywhere."""
        mask = self.get("edge_mask")
        if mask is None or bool(mask.amin() < mask.amax()):
            super().visualize_graph(path, backend, node_labels)
        else:  # torch_geometric divides by the range of the mask, which is 0
            visualize_graph(self.edge_index[:, mask > 0], None, path, backend, node_labels)


class VerifiedHeteroExplanation(Verified, TypedMasks):  # type: ignore[misc]
    """A torch_geometric HeteroExplanation whose masks were verified on reduced graphs.

    Attributes
    ----------
    cf2 : cf2.Explanations
        One `cf2.Explanation` per requested node or pair, in the order of `index`.
    edge_mask_dict : dict of Tensor
        By edge type, 1 for the edges chosen for any of them, 0 elsewhere; with `soft=True`, scores.
    node_mask_dict : dict of Tensor
        The same for features, by node type; the shape is that of the `node_mask_type`.
    sufficient, necessary, minimal, optimal : bool or None
        True if it holds for all, False if one fails, None if one was not checked.
    """

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
        subgraph: VerifiedHeteroExplanation = super()._apply_masks(nodes, edge_mask_dict)
        return subgraph


def _values(e: Explanation, soft: bool) -> np.ndarray:
    """What a mask holds of each unit: whether it was chosen, or a score above 0.5 where it was.

    A chosen unit gets 0.5 + s / 2 and any other s / 2, so that a threshold of 0.5 gives back the set and the
    largest k are chosen ones first.
    """
    if not soft:
        return e.selected.astype(np.float32)
    s = np.clip(e.scores, 0.0, 1.0)
    values: np.ndarray = np.where(e.selected, 0.5 + np.maximum(s, 1e-3) / 2, s / 2).astype(np.float32)
    return values


def _node_mask(shown: list[Explanation], kind: str, x: Tensor, node_type: str | None = None) -> np.ndarray:
    """[nodes, features], [nodes, 1] or [1, features]: the largest value of each unit of a kind, or of a node type."""
    nodes, features = x.shape
    mask = np.zeros((1 if kind == "columns" else nodes, 1 if kind == "node_features" else features), dtype=np.float32)
    for e in shown:
        rows = e.units.where(kind)
        node, column = e.units.ids[rows].T  # -1 where a unit is no single node or column: the only place there is
        if node_type is not None:
            assert e.types is not None
            position = e.types.nodes.index(node_type)
            if kind == "columns":
                own = e.units.types[rows] == position
            else:
                own, node = e.types.of(node) == position, node - e.types.starts[position]
            rows, node, column = rows[own], node[own], column[own]
        np.maximum.at(mask, (node, column), e.scores[rows])
    return mask
