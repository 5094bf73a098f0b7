"""Explain your own graph classifier: which bonds, and which atoms, made it say "active"?

Chains of atoms, some of which carry a planted group: two atoms of kind 2 on one of kind 1. The model learns
to find the group, and the explanation should point at it.

    python examples/graph_classifier.py
"""

import random

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_add_pool

import cf2

KINDS = 3


def molecule(active: bool, draw: random.Random) -> Data:
    """A chain of atoms of kind 0 with the group, or with its three atoms scattered, at random places."""
    length = draw.randint(8, 12)
    edges = [(i, i + 1) for i in range(length - 1)]
    kinds = [0] * length
    first, second, third = draw.sample(range(length), 3)
    a, b, c = length, length + 1, length + 2
    kinds += [1, 2, 2]
    edges += [(first, a), (a, b), (a, c)] if active else [(first, a), (second, b), (third, c)]
    pairs = torch.tensor(edges + [(j, i) for i, j in edges]).t().contiguous()
    group = torch.tensor([[a, b], [a, c]]) if active else torch.zeros(0, 2, dtype=torch.long)
    return Data(x=torch.eye(KINDS)[kinds], edge_index=pairs, y=torch.tensor([int(active)]), group=group)


class Classifier(torch.nn.Module):
    """A graph classifier takes `batch`, so that many graphs run at once."""

    def __init__(self) -> None:
        super().__init__()
        dense = torch.nn.Sequential
        self.first = GINConv(dense(torch.nn.Linear(KINDS, 16), torch.nn.ReLU()))
        self.second = GINConv(dense(torch.nn.Linear(16, 16), torch.nn.ReLU()))
        self.last = torch.nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        return self.last(global_add_pool(self.second(self.first(x, edge_index), edge_index), batch))


def train(model: torch.nn.Module, graphs: list[Data], steps: int = 200) -> float:
    """Plain training; returns the share of graphs that the model gets right."""
    batch = Batch.from_data_list(graphs)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
        adam.step()
    return float((model(batch.x, batch.edge_index, batch.batch).argmax(1) == batch.y).float().mean())


def main() -> None:
    torch.manual_seed(0)
    draw = random.Random(0)
    graphs = [molecule(active=bool(i % 2), draw=draw) for i in range(60)]
    model = Classifier()
    print(f"{len(graphs)} graphs, accuracy {train(model, graphs):.2f}\n")

    active = [g for g in graphs if int(g.y) == 1][:5]
    found = cf2.explain(model, active)
    print("edges only")
    for e, g in zip(found, active):
        chosen = {tuple(pair) for pair in e.chosen("edges").tolist()}
        inside = len(chosen & {tuple(pair) for pair in g.group.tolist()})
        print(f"  graph {e.key}: {e.size} of {e.num_units} edges, {inside} of them in the group")
    print(f"  in words, graph 0: {found[0].summary()}")

    # Edges and features in one explanation: a feature unit is a non-zero entry of x, here an atom's kind.
    both = cf2.explain(model, active, units="edges,features")
    print("\nedges and features")
    for e in both:
        atoms = [f"{node} (kind {kind})" for node, kind in e.features.tolist()]
        edges = [f"{a}-{b}" for a, b in e.chosen("edges").tolist()]
        print(f"  graph {e.key}: edges {', '.join(edges) or 'none'}; atoms {', '.join(atoms) or 'none'}")

    rival = cf2.explain(model, active, method="gnnexplainer", k=3)
    print("\nmethod          necessary  sufficient  size")
    for name, result in (("cf2", found), ("gnnexplainer", rival)):
        s = result.summary()
        print(f"{name:14s}  {s['pn']:9.0%}  {s['ps']:10.0%}  {s['size']:4.1f}")


if __name__ == "__main__":
    main()
