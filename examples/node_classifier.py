"""Explain your own node classifier: which edges made it put this node into that class?

A tree with triangles hung onto some of its leaves; the model learns which nodes lie on a triangle.

    python examples/node_classifier.py
"""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import cf2


def tree_with_triangles(leaves: int = 16) -> Data:
    """A binary tree; every second leaf is a corner of a triangle, every other one has a short tail."""
    edges = [(child, (child - 1) // 2) for child in range(1, 2 * leaves - 1)]
    labels = [0] * (2 * leaves - 1)
    for number, leaf in enumerate(range(leaves - 1, 2 * leaves - 1)):
        a, b = len(labels), len(labels) + 1
        if number % 2:
            edges += [(leaf, a), (a, b), (b, leaf)]
            labels[leaf] = 1
            labels += [1, 1]
        else:
            edges += [(leaf, a), (a, b)]
            labels += [0, 0]
    pairs = torch.tensor(edges + [(b, a) for a, b in edges]).t().contiguous()
    return Data(x=torch.ones(len(labels), 1), edge_index=pairs, y=torch.tensor(labels))


class Classifier(torch.nn.Module):
    """Any torch_geometric model will do: `forward(x, edge_index)` with one row of class scores per node."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(SAGEConv(a, b, aggr="sum") for a, b in ((1, 16), (16, 16), (16, 2)))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


def train(model: torch.nn.Module, data: Data, steps: int = 300) -> float:
    """Plain training; returns the share of nodes that the model gets right."""
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
        adam.step()
    return float((model(data.x, data.edge_index).argmax(1) == data.y).float().mean())


def main() -> None:
    torch.manual_seed(0)
    data, model = tree_with_triangles(), Classifier()
    print(f"{data.num_nodes} nodes, accuracy {train(model, data):.2f}\n")

    nodes = [16, 18, 20]  # leaves on a triangle
    found = cf2.explain(model, data, nodes=nodes, effort="thorough")

    for e in found:
        pairs = ", ".join(f"{a}-{b}" for a, b in e.chosen("edges").tolist())
        print(f"node {e.key} is in class {e.prediction} because of {e.size} of {e.num_units} edges: {pairs}")
        print(f"  with all edges    P(class) = {e.probabilities[e.prediction]:.2f}")
        print(f"  with only these   P(class) = {e.probabilities_only[e.prediction]:.2f}   sufficient: {e.sufficient}")
        print(f"  without them      P(class) = {e.probabilities_without[e.prediction]:.2f}   necessary:  {e.necessary}")
        print(f"  no edge can be dropped: {bool(e.minimal)}, proved smallest: {bool(e.optimal)}")

    s = found.summary()
    print(f"\nnecessary {s['pn']:.0%}, sufficient {s['ps']:.0%}, {s['size']:.1f} edges on average\n")
    print(found.to_pandas()[["key", "prediction", "label", "size", "sufficient", "necessary"]].to_string(index=False))


if __name__ == "__main__":
    main()
