"""For the tests of `cf2.pyg`: small models of every kind, a small graph, and an Explainer with the usual arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool

from cf2.pyg import CF2Explainer

LAYERS = {
    "gcn": lambda a, b: GCNConv(a, b),
    "gin": lambda a, b: GINConv(torch.nn.Linear(a, b)),
    "gat": lambda a, b: GATConv(a, b, heads=1),
    "sage": lambda a, b: SAGEConv(a, b),
}


class TwoLayers(torch.nn.Module):
    """Two convolutions, pooling for graphs, and the kind of output that is asked for."""

    def __init__(self, kind: str, level: str, returns: str = "raw", seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        outputs = 1 if returns.startswith("binary") else 3
        self.convs = torch.nn.ModuleList([LAYERS[kind](4, 8), LAYERS[kind](8, outputs)])
        self.level, self.returns = level, returns

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        h = self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)
        if self.level == "graph":
            h = global_add_pool(h, batch)
        if self.returns in ("raw", "binary raw"):
            return h
        if self.returns == "binary probs":
            return h.sigmoid()
        return h.softmax(-1) if self.returns == "probs" else h.log_softmax(-1)


def make_model(kind: str, level: str, returns: str = "raw", seed: int = 0) -> TwoLayers:
    """A model of 4 features, and of 3 classes or one output."""
    return TwoLayers(kind, level, returns, seed).eval()


def make_graph(seed: int = 0, nodes: int = 12) -> Data:
    """A ring with chords, undirected, with some zeros in its features."""
    draw = torch.Generator().manual_seed(seed)
    pairs = {(i, (i + 1) % nodes) for i in range(nodes)} | {(i, (i * 5 + 2) % nodes) for i in range(0, nodes, 3)}
    pairs = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    order = torch.randperm(2 * len(pairs), generator=draw)
    both = torch.tensor([*pairs, *((b, a) for a, b in pairs)]).t()[:, order]
    x = torch.randn(nodes, 4, generator=draw)
    return Data(x=x * (torch.rand(nodes, 4, generator=draw) > 0.3), edge_index=both.contiguous())


def make_explainer(
    model: torch.nn.Module, level: str, returns: str = "raw", algorithm: Any = None, **options: Any
) -> Explainer:
    """An Explainer with masks of edges, by a quick CF² if nothing else is given."""
    mode = "binary_classification" if returns.startswith("binary") else "multiclass_classification"
    return Explainer(
        model,
        algorithm or CF2Explainer(effort="quick"),
        explanation_type=options.pop("explanation_type", "model"),
        model_config={"mode": mode, "task_level": level, "return_type": returns.split()[-1]},
        edge_mask_type=options.pop("edge_mask_type", "object"),
        **options,
    )


def typed_explainer(
    model: torch.nn.Module,
    level: str,
    algorithm: Any = None,
    *,
    mode: str = "multiclass_classification",
    kind: str = "model",
    **masks: Any,
) -> Explainer:
    """The same of a typed model, which gives logits or numbers."""
    config = {"mode": mode, "task_level": level, "return_type": "raw"}
    return Explainer(model, algorithm or CF2Explainer(effort="quick"), kind, config, edge_mask_type="object", **masks)
