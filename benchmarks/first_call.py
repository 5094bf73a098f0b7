"""The share of predictions that the first call with defaults answers, for ten kinds of model trained in seconds.

    python benchmarks/first_call.py DATA [kind …] [--units auto] [--keep]

DATA holds Planetoid/Cora and Chemprop/*.csv. Each row trains one model as its users would, and then calls cf2.explain
once, with no options but what the model needs. "answered" counts the status `found`; the other columns say with which
units, what the others say, and how many of the others are answered by what their note advises: to add edges.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import figures
import pandas
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data, HeteroData
from torch_geometric.datasets import Planetoid
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GINEConv,
    GPSConv,
    HeteroConv,
    PointNetConv,
    SAGEConv,
    TransformerConv,
    global_add_pool,
    global_max_pool,
    to_hetero,
)
from torch_geometric.utils import from_smiles, to_undirected

import cf2

HEAD = {"model": "", "explained": "", "answered": "d", "of": "d", "units of the answers": "", "other statuses": ""}
HEAD |= {"changed by added edges": "d", "CPU, s": ".1f"}
ADVICE: dict[str, Any] = {"question": "counterfactual", "edits": ("remove", "add")}
WORDS = "models that the script trains in seconds"
Made = tuple[nn.Module, Any, dict[str, Any]]  # a model, its data, and what cf2.explain is passed


def trained(model: nn.Module, loss: Callable[[Any], Tensor], batches: Iterable[Any], epochs: int) -> nn.Module:
    """The model after so many passes over the batches."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        for batch in batches:
            optimiser.zero_grad()
            loss(batch).backward()
            optimiser.step()
    return model.eval()


class Layers(nn.Module):
    """Two layers over nodes; `whole` takes one Data object."""

    def __init__(self, layer: Callable[[int, int], nn.Module], sizes: tuple[int, int, int]) -> None:
        super().__init__()
        self.first, self.second = layer(*sizes[:2]), layer(*sizes[1:])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class OfData(Layers):
    def forward(self, data: Data) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index)


class Links(Layers):
    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:  # type: ignore[override]
        h = super().forward(x, edge_index)
        odds = (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(1)
        return torch.stack([-odds, odds], 1)


class GPS(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.start, self.end = nn.Linear(features, 16), nn.Linear(16, classes)
        self.layer = GPSConv(16, GINConv(nn.Linear(16, 16)), heads=2, norm=None)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.end(self.layer(self.start(x), edge_index).relu())


class Bonds(nn.Module):
    """GINE over atoms and bonds as `from_smiles` gives them: whole numbers, which are categories."""

    def __init__(self, outputs: int, width: int = 32) -> None:
        super().__init__()
        self.atoms = nn.ModuleList(nn.Embedding(120, width) for _ in range(9))
        self.bonds = nn.ModuleList(nn.Embedding(24, width) for _ in range(3))
        mlps = (nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(3))
        self.layers, self.end = nn.ModuleList(GINEConv(mlp) for mlp in mlps), nn.Linear(width, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        h = sum(atoms(x[:, column]) for column, atoms in enumerate(self.atoms))
        bond = sum(bonds(edge_attr[:, column]) for column, bonds in enumerate(self.bonds))
        for layer in self.layers:
            h = layer(h, edge_index, bond).relu()
        return self.end(global_add_pool(h, batch))


class PointNet(nn.Module):
    """torch_geometric's tutorial: two PointNet layers over the nearest points, and the maximum."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        self.first = PointNetConv(nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width)))
        self.second = PointNetConv(nn.Sequential(nn.Linear(width + 3, width), nn.ReLU(), nn.Linear(width, width)))
        self.end = nn.Linear(width, classes)

    def forward(self, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.second(self.first(pos, pos, edge_index).relu(), pos, edge_index).relu()
        return self.end(global_max_pool(h, batch))


def node_classifier(layer: Any, kind: type[Layers] = Layers) -> Callable[[Path], Made]:
    """A model of Cora's nodes, whose test nodes are explained."""

    def make(path: Path) -> Made:
        data = Planetoid(str(path / "Planetoid"), "Cora")[0]
        if layer is GPS:  # it attends to all pairs of nodes
            data = data.subgraph(torch.arange(400))
        sizes = (data.num_features, 16, 7)
        model: Any = GPS(sizes[0], 7) if layer is GPS else kind(layer, sizes)

        def loss(data: Data) -> Tensor:
            out = model(data) if kind is OfData else model(data.x, data.edge_index)
            return F.cross_entropy(out[data.train_mask], data.y[data.train_mask])

        trained(model, loss, [data], 60)
        held_out = data.val_mask if layer is GPS else data.test_mask
        return model, data, {"nodes": held_out.nonzero().flatten()[:20].tolist()}

    return make


def links(path: Path) -> Made:
    data = Planetoid(str(path / "Planetoid"), "Cora")[0]
    model, edges = Links(SAGEConv, (data.num_features, 16, 16)), data.edge_index

    def loss(data: Data) -> Tensor:
        others = torch.randint(data.num_nodes, edges.shape)
        out = model(data.x, edges, torch.cat([edges, others], 1))
        return F.cross_entropy(out, torch.tensor([1, 0]).repeat_interleave(edges.size(1)))

    trained(model, loss, [data], 30)
    return model, data, {"pairs": edges.t()[:: edges.size(1) // 20][:20].tolist()}


def typed_graph() -> HeteroData:
    """Users and items; a user's class is the kind of most items that it bought."""
    data, draw = HeteroData(), torch.Generator().manual_seed(0)
    kind = torch.randint(2, (120,), generator=draw)
    bought = torch.stack([torch.arange(80).repeat_interleave(5), torch.randint(120, (400,), generator=draw)])
    data["user"].x = torch.randn(80, 4, generator=draw)
    data["item"].x = F.one_hot(kind, 2).float() + 0.1 * torch.randn(120, 2, generator=draw)
    data["user", "bought", "item"].edge_index = bought
    data["item", "bought_by", "user"].edge_index = bought.flip(0)
    data["user"].y = (torch.zeros(80).index_add(0, bought[0], kind[bought[1]].float()) > 2).long()
    return data


class Typed(nn.Module):
    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            HeteroConv({kind: SAGEConv((-1, -1), size) for kind in data.edge_types}) for size in (16, 2)
        )

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        hidden = {kind: x.relu() for kind, x in self.layers[0](x_dict, edge_index_dict).items()}
        return self.layers[1](hidden, edge_index_dict)["user"]


def typed(as_written: bool) -> Callable[[Path], Made]:
    def make(path: Path) -> Made:
        data = typed_graph()
        model: Any = (
            Typed(data)
            if as_written
            else to_hetero(Layers(lambda a, b: SAGEConv((-1, -1), b), (2, 16, 2)), data.metadata())
        )

        def read(data: HeteroData) -> Tensor:
            out = model(data.x_dict, data.edge_index_dict)
            return out["user"] if isinstance(out, dict) else out

        read(data)
        trained(model, lambda data: F.cross_entropy(read(data), data["user"].y), [data], 60)
        return model, data, {"nodes": list(range(20)), "node_type": "user"}

    return make


def molecules(file: str, column: str, outputs: int) -> Callable[[Path], Made]:
    """A GINE of molecules as `from_smiles` reads them: of two classes, or of one number."""

    def make(path: Path) -> Made:
        table = pandas.read_csv(path / "Chemprop" / file).dropna(subset=[column])
        graphs = [from_smiles(smiles) for smiles in table.smiles]
        values = torch.tensor(table[column].to_numpy(), dtype=torch.float)
        for graph, value in zip(graphs, values):
            graph.y = value.long() if outputs > 1 else value
        kept = [graph for graph in graphs if graph.num_edges]
        weight = torch.tensor([values.mean(), 1 - values.mean()]) if outputs > 1 else None  # few are active
        model = Bonds(outputs)

        def loss(batch: Data) -> Tensor:
            out = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
            return F.mse_loss(out[:, 0], batch.y) if weight is None else F.cross_entropy(out, batch.y, weight)

        trained(model, loss, DataLoader(kept[20:], 64, shuffle=True), 30)
        return model, kept[:20], {"output": "regression"} if outputs == 1 else {}

    return make


def clouds(path: Path) -> Made:
    """Points on spheres, cubes and discs, each joined to its six nearest."""
    graphs, draw = [], torch.Generator().manual_seed(0)
    for number in range(180):
        points = torch.randn(24, 3, generator=draw)
        norm = points.norm(dim=1, keepdim=True) if number % 3 == 0 else points.abs().max(1, keepdim=True).values
        points = points * torch.tensor([1.0, 1.0, 0.1]) if number % 3 == 2 else points / norm
        near = torch.cdist(points, points).topk(7, largest=False).indices[:, 1:]
        edges = torch.stack([near.flatten(), torch.arange(24).repeat_interleave(6)])
        graphs.append(Data(pos=points, edge_index=to_undirected(edges), y=number % 3))
    model = PointNet(3)

    def loss(batch: Data) -> Tensor:
        return F.cross_entropy(model(batch.pos, batch.edge_index, batch.batch), batch.y)

    trained(model, loss, DataLoader(graphs[24:], 32, shuffle=True), 30)
    return model, graphs[:24], {}


def large(path: Path) -> Made:
    """200,000 nodes with three neighbours each; the class is that of most of them."""
    draw, count = torch.Generator().manual_seed(0), 200_000
    edges = to_undirected(torch.randint(count, (2, 3 * count), generator=draw))
    x = torch.randn(count, 8, generator=draw)
    total = torch.zeros(count).index_add(0, edges[1], x[edges[0], 0])
    data, model = Data(x=x, edge_index=edges, y=(total + x[:, 1] > 0).long()), Layers(SAGEConv, (8, 16, 2))
    trained(model, lambda data: F.cross_entropy(model(data.x, data.edge_index), data.y), [data], 10)
    return model, data, {"nodes": list(range(10))}


KINDS: dict[str, tuple[str, Callable[[Path], Made]]] = {
    "GAT": ("nodes of Cora", node_classifier(GATConv)),
    "GINE": ("molecules, NR-AhR", molecules("classification.csv", "NR-AhR", 2)),
    "SAGE-links": ("links of Cora", links),
    "HeteroConv": ("nodes of a typed graph", typed(True)),
    "to_hetero": ("nodes of a typed graph", typed(False)),
    "regression": ("molecules, solubility", molecules("regression.csv", "logSolubility", 1)),
    "GPS": ("nodes of a part of Cora", node_classifier(GPS)),
    "200,000-nodes": ("nodes of a random graph", large),
    "forward(data)": ("nodes of Cora", node_classifier(GCNConv, OfData)),
    "TransformerConv": ("nodes of Cora", node_classifier(TransformerConv)),
    "PointNet": ("point clouds", clouds),
}


def row(name: str, path: Path, options: dict[str, Any]) -> list[Any]:
    """One row of the table."""
    what, make = KINDS[name]
    torch.manual_seed(0)
    model, data, given = make(path)
    started = time.process_time()
    found = cf2.explain(model, data, **given, **options)
    seconds = time.process_time() - started
    units = Counter(" + ".join(e.units.names) for e in found if e.status == "found")
    others = Counter(e.status for e in found if e.status != "found")
    for e in found:
        if e.status != "found":
            print(f"  {e.key}: {e.status}, says {e.prediction}: {e.note}")
    words = [", ".join(f"{count} {name}" for name, count in counts.items()) for counts in (units, others)]
    left = {"pairs" if "pairs" in given else "nodes": [e.key for e in found if e.status != "found"]}
    asked = {**given, **left, **ADVICE, "tolerance": found[0].tolerance}
    again = cf2.explain(model, data, **asked) if others else ()
    changed = sum(e.status == "found" for e in again) if others else None
    return [name, what, units.total(), len(found), *words, changed, seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("kinds", nargs="*", help=f"some of {', '.join(KINDS)}; all if none is named")
    parser.add_argument("--units", nargs="+", help="in place of the default")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/measured/first_call.json")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    options = {} if chosen.units is None else {"units": chosen.units}
    rows = []
    for name in chosen.kinds or KINDS:
        rows.append(row(name, chosen.data, options))
        print(*(f"{name}: {value};" for name, value in zip(HEAD, rows[-1])), flush=True)
    if chosen.keep:
        figures.keep("first_call", "python benchmarks/first_call.py DATA --keep", HEAD, rows, trained=WORDS)


if __name__ == "__main__":
    main()
