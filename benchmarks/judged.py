"""Explanations of torch_geometric judged by cf2: PN, PS, F_NS, PNS on really edited graphs, and seconds.

    python benchmarks/judged.py [--instances 40] [--size 10]

A GIN is trained here on half of Mutagenicity for a minute. GNNExplainer, PGExplainer (trained on 30 graphs), attention
(of a GAT that is trained likewise) and, where it is installed, Captum's integrated gradients are torch_geometric's,
with its defaults. `cf2.metrics.judge` takes the ten best edges of each; `cf2` chooses its own size, and its masks go
through the same judge.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import figures
import torch
from nets import MaxPooled, trained
from torch_geometric.data import Data
from torch_geometric.explain import (
    AttentionExplainer,
    CaptumExplainer,
    Explainer,
    GNNExplainer,
    ModelConfig,
    PGExplainer,
)

import cf2
from cf2.models.soft_masks import single_thread

CONFIG = ModelConfig(mode="multiclass_classification", task_level="graph", return_type="raw")
Explain = Callable[[Data], Any]


def plain(algorithm: Any) -> Callable[[MaxPooled, list[Data]], Explain]:
    """An explainer that needs no training."""

    def make(model: MaxPooled, learn: list[Data]) -> Explain:
        explainer = Explainer(model, algorithm(), "model", CONFIG, edge_mask_type="object")
        return lambda graph: explainer(graph.x, graph.edge_index).edge_mask

    return make


def pgexplainer(model: MaxPooled, learn: list[Data]) -> Explain:
    """Trained on graphs for the class that the model gives."""
    algorithm = PGExplainer(epochs=30, lr=0.003)
    explainer = Explainer(model, algorithm, "phenomenon", CONFIG, edge_mask_type="object")

    def says(graph: Data) -> torch.Tensor:
        return model(graph.x, graph.edge_index).argmax(1)

    for epoch in range(30):
        for graph in learn:
            algorithm.train(epoch, model, graph.x, graph.edge_index, target=says(graph))
    return lambda graph: explainer(graph.x, graph.edge_index, target=says(graph)).edge_mask


WAYS: dict[str, tuple[str, Callable[[MaxPooled, list[Data]], Explain]]] = {
    "GNNExplainer": ("GIN", plain(GNNExplainer)),
    "PGExplainer": ("GIN", pgexplainer),
    "AttentionExplainer": ("GAT", plain(AttentionExplainer)),
}
if find_spec("captum"):
    WAYS["CaptumExplainer"] = ("GIN", plain(lambda: CaptumExplainer("IntegratedGradients")))


def row(layer: str, name: str, judged: Any, seconds: float, masks: list[Any]) -> figures.Row:
    """The means over the instances; no shares where most masks have the same number at every edge."""
    means, equal = judged.means, sum(float(mask.max()) == float(mask.min()) for mask in masks) > len(masks) / 2
    shares = {f"{field.upper()} %": None if equal else float(means[field]) for field in ("pn", "ps", "fns", "pns")}
    return {
        "model": layer,
        "explainer": name + (", equal scores" if equal else ""),
        "n": len(judged.explanations),
        **shares,
        "size": float(means["size"]),
        "CPU s each": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=40)
    parser.add_argument("--size", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    every = [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in cf2.datasets.load("mutag").graphs]
    rows: list[figures.Row] = []
    with single_thread():
        for layer in ("GIN", "GAT"):
            model, test, accuracy = trained(every[::2], epochs=10, layer=layer)
            print(f"{layer}: accuracy {100 * accuracy:.1f} %", flush=True)
            graphs = [every[::2][place] for place in test][: given.instances]
            learn = [graph for place, graph in enumerate(every[::2]) if place not in set(test)][:30]
            start = time.process_time()
            found = cf2.explain(model, graphs, units="edges")
            spent = (time.process_time() - start) / len(graphs)
            own = [e.chosen("edges") for e in found]
            rows.append(row(layer, "cf2", cf2.metrics.judge(model, graphs, own), spent, []))
            for name, (kind, make) in WAYS.items():
                if kind == layer:
                    torch.manual_seed(0)
                    explain = make(copy.deepcopy(model), learn)  # GNNExplainer leaves layers that Captum cannot mask
                    start = time.process_time()
                    masks = [explain(graph) for graph in graphs]
                    spent = (time.process_time() - start) / len(graphs)
                    judged = cf2.metrics.judge(model, graphs, masks, size=given.size)
                    rows.append(row(layer, name, judged, spent, masks))
            print(rows, flush=True)
    figures.keep_rows("judged", rows, "a GIN and a GAT that the script trains on half of Mutagenicity")


if __name__ == "__main__":
    main()
