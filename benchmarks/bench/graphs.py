"""What is measured: the paper's data sets, and random graphs of any size with known neighbourhoods."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

from cf2.errors import CF2Error
from cf2.graphs.graph import Graph
from cf2.graphs.targets import NodeTargets
from cf2.models.soft_masks import single_thread
from cf2.options import Spec
from cf2.runs.session import Request
from cf2.runs.source import ModelAndData
from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.samples.models import build
from cf2.samples.sources import from_dataset

BLOCK = 10_000  # nodes of the graph whose copies make the larger ones
DEGREE = 10  # directed edges a node, so a block has 10⁵


@cache
def molecules(root: str | Path | None = None, hidden: int = 128) -> ModelAndData | None:
    """Mutag₀ with a model of that width, where the data is: the recipe but for the width, seed 0, trained here."""
    try:
        dataset = datasets.load("mutag0", root=root)
    except CF2Error:
        return None
    with single_thread(), TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        training.save(path, *training.train(dataset, seed=0, hidden=hidden))
        return from_dataset("mutag0", checkpoint=path, root=root)


def shapes() -> ModelAndData:
    """BA-Shapes with its shipped model (hidden size 16)."""
    return from_dataset("ba-shapes")


def citations(root: str | Path | None = None) -> ModelAndData | None:
    """CiteSeer with its shipped model, where the data is."""
    try:
        return from_dataset("citeseer", root=root)
    except CF2Error:
        return None


def resized(source: ModelAndData, hidden: int) -> ModelAndData:
    """The same data with an untrained model of another hidden size, which costs what a trained one costs."""
    about = training.shipped(source.name)[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = replace(about.recipe, hidden=hidden).build(about).eval()
    return replace(source, model=model)


def model_for(hidden: int = 16, layers: int = 2, features: int = 10) -> nn.Module:
    """An untrained GCN without degree normalisation: it looks exactly `layers` hops far."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        options = {"num_features": features, "num_classes": 4, "hidden": hidden, "layers": layers}
        return build("gcn", task="node", aggregation="sum", **options).eval()  # type: ignore[arg-type]


def block(seed: int = 0, nodes: int = BLOCK, degree: int = DEGREE) -> np.ndarray:
    """An undirected random graph as directed edges [2, nodes · degree]."""
    rng = np.random.default_rng(seed)
    half = nodes * degree // 2
    tail = np.repeat(np.arange(nodes), degree // 2)
    head = (tail + rng.integers(1, nodes, half)) % nodes
    return np.stack([np.concatenate([tail, head]), np.concatenate([head, tail])])


def copies(count: int, nodes: int = BLOCK) -> tuple[Graph, np.ndarray]:
    """A graph of `count` copies of the block under shuffled ids, and where the nodes of the first copy went.

    The first copy has the same neighbourhoods whatever `count` is, so only the size of the graph differs.
    """
    edges = block(nodes=nodes)
    places = np.random.default_rng(1).permutation(count * nodes)
    whole = (edges[:, None, :] + (np.arange(count) * nodes)[None, :, None]).reshape(2, -1)
    x = np.random.default_rng(2).standard_normal((nodes, 10)).astype(np.float32)
    rows = np.empty((count * nodes, 10), dtype=np.float32)
    rows[places] = np.tile(x, (count, 1))
    data = Data(x=torch.from_numpy(rows), edge_index=torch.from_numpy(places[whole]))
    return Graph(data, directed=False), places[:nodes]


def request_of(graph: Graph, method: str = "cf2", hidden: int = 16, **settings: object) -> Request:
    """The request to explain nodes of a graph of ours by the untrained model."""
    return Request(model_for(hidden), NodeTargets(graph), Spec(method, settings=dict(settings)))


def big_request(count: int) -> tuple[Request, list[int]]:
    """The request to explain nodes of a graph of `count` blocks, and all nodes of its first block."""
    graph, nodes = copies(count)
    return request_of(graph), nodes.tolist()
