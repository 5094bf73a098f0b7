"""How far an explanation stays the same when edges of noise are added to the graph; fills benchmarks/NOTES.md.

    python benchmarks/stability.py [--most 80] [--only NAME …] [--keep FILE] [--write]

A GCN with BatchNorm and max pooling is trained on Mutagenicity, once, with a fixed seed. Test graphs are drawn, those
kept for which `cf2` finds an answer. To each, 1, 3 and 5 edges are added at random such that the prediction stays.
The figure is the mean Jaccard overlap of the edges that are chosen before and after; edges of noise do not count.
`gnnexplainer` chooses as many edges of a graph as `cf2` did before the noise, so that no method is given more room.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_max_pool

import cf2
from cf2.models.soft_masks import single_thread
from cf2.results.explanation import Explanation

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction.robustness import with_noise

PAGE = Path(__file__).parent / "NOTES.md"
BEGIN, END = "<!-- stability: begin -->", "<!-- stability: end -->"
NOISE = (1, 3, 5)
DRAWS = 3  # noisy graphs of each graph and number of edges
Edges = set[tuple[int, ...]]
Row = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """A method with its settings; `sized`: it is given the size of the answer of `cf2`."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    sized: bool = False


WAYS = (
    Way("cf2"),
    Way("cf2, quick", {"effort": "quick"}),
    Way("cf2, thorough", {"effort": "thorough"}),
    Way("cf2, confidence=0.5", {"confidence": 0.5}),
    Way("cf2, surely=0.9", {"surely": 0.9}),
    Way("cf2-relaxed", {"method": "cf2-relaxed"}),
    Way("gnnexplainer, size of cf2", {"method": "gnnexplainer"}, sized=True),
    Way("gradient, size of cf2", {"method": "gradient"}, sized=True),
    Way("gnnexplainer, k=10", {"method": "gnnexplainer", "k": 10}),
)


# -- the model -----------------------------------------------------------------------------------------------


LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "GCN": GCNConv,
    "GIN": lambda a, b: GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))),
    "GAT": GATConv,
    "SAGE": SAGEConv,
}


class MaxPooled(nn.Module):
    """Three layers with BatchNorm, the maximum over the nodes, and a linear layer."""

    def __init__(self, features: int, hidden: int = 64, layer: str = "GCN") -> None:
        super().__init__()
        sizes = [features, hidden, hidden, hidden]
        self.layers = nn.ModuleList(LAYERS[layer](a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in sizes[1:])
        self.last = nn.Linear(hidden, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for layer, norm in zip(self.layers, self.norms):
            x = norm(layer(x, edge_index)).relu()
        return self.last(global_max_pool(x, batch))


def trained(
    graphs: Sequence[Data], epochs: int = 40, seed: int = 0, layer: str = "GCN"
) -> tuple[MaxPooled, list[int], float]:
    """The model after so many epochs on four fifths of the graphs, the other graphs, and its accuracy on them."""
    torch.manual_seed(seed)
    order = torch.randperm(len(graphs)).tolist()
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    model = MaxPooled(graphs[0].num_features, layer=layer)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(epochs):
        for batch in DataLoader([graphs[key] for key in train], batch_size=128, shuffle=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
            optimiser.step()
    model.eval()
    said = classes(model, [graphs[key] for key in test])
    right = said == torch.cat([graphs[key].y for key in test])
    return model, test, float(right.float().mean())


@torch.no_grad()
def classes(model: MaxPooled, graphs: Sequence[Data]) -> Tensor:
    batch = Batch.from_data_list(list(graphs))
    return model(batch.x, batch.edge_index, batch.batch).argmax(1)


# -- noise ---------------------------------------------------------------------------------------------------


def noisy(model: MaxPooled, graph: Data, count: int, draw: torch.Generator) -> tuple[Data, Edges] | None:
    """The graph with so many more undirected edges and the same prediction, and those edges; None if tries run out."""
    made = with_noise(lambda graphs: classes(model, graphs), graph, count, draw)
    if made is None:
        return None
    return made, {tuple(sorted(pair)) for pair in made.edge_index[:, graph.edge_index.size(1) :].t().tolist()}


# -- what is measured ----------------------------------------------------------------------------------------


def answers(model: MaxPooled, graphs: Sequence[Data], way: Way, sizes: Sequence[int]) -> list[Explanation]:
    """The explanations of graphs; `sizes` are what a method that is given its size is given."""
    if not way.sized:
        return list(cf2.explain(model, list(graphs), **way.options))
    found: dict[int, Explanation] = {}
    for size in sorted(set(sizes)):
        mine = [place for place, own in enumerate(sizes) if own == size]
        found |= dict(zip(mine, cf2.explain(model, [graphs[place] for place in mine], k=size, **way.options)))
    return [found[place] for place in range(len(graphs))]


def chosen(e: Explanation) -> Edges:
    return {tuple(sorted(pair)) for pair in e.chosen("edges").tolist()}


def jaccard(before: Edges, after: Edges) -> float:
    return len(before & after) / len(before | after)


@dataclass(frozen=True)
class Case:
    """A graph after noise: its place among the graphs, how many edges came in, which, and what it is now."""

    place: int
    count: int
    new: Edges
    graph: Data


def measure(model: MaxPooled, graphs: Sequence[Data], cases: Sequence[Case], way: Way, sizes: Sequence[int]) -> Row:
    """One row of the table."""
    started = time.process_time()
    before = answers(model, graphs, way, sizes)
    after = answers(model, [case.graph for case in cases], way, [sizes[case.place] for case in cases])
    seconds = time.process_time() - started
    overlap: dict[int, list[float]] = {count: [] for count in NOISE}
    for case, e in zip(cases, after):
        if first := chosen(before[case.place]):  # without an answer there is nothing to stay the same
            overlap[case.count].append(jaccard(first, chosen(e) - case.new))
    return {
        "n": len(graphs),
        "passed": float(np.mean([e.sufficient and e.necessary for e in before])),
        "size": float(np.mean([e.size for e in before])),
        "size after": float(np.mean([e.size for e in after])),
        "jaccard": {str(count): float(np.mean(values)) for count, values in overlap.items()},
        "evaluations": float(np.mean([e.evaluations for e in [*before, *after]])),
        "seconds": seconds / (len(before) + len(after)),
    }


def table(rows: dict[str, Row]) -> list[str]:
    lines = [
        "| method | both tests passed, % | size | 1 edge | 3 edges | 5 edges | evaluations | CPU, ms |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, r in rows.items():
        overlap = [f"{r['jaccard'][str(count)]:.2f}" for count in NOISE]
        cells = [name, f"{100 * r['passed']:.0f}", f"{r['size']:.2f}", *overlap]
        lines.append("| " + " | ".join([*cells, f"{r['evaluations']:,.0f}", f"{1e3 * r['seconds']:.1f}"]) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=80, help="so many graphs")
    parser.add_argument("--only", nargs="*", help="the names of some methods")
    parser.add_argument("--keep", type=Path, help="a JSON file that keeps what is measured")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    given = parser.parse_args()
    rows: dict[str, Row] = {}
    if given.keep is not None and given.keep.exists():
        rows = json.loads(given.keep.read_text(encoding="utf-8"))
    with single_thread():
        data = cf2.datasets.load("mutag")
        graphs = [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in data.graphs]
        model, test, accuracy = trained(graphs)
        print(f"accuracy on {len(test)} test graphs: {100 * accuracy:.1f} %", flush=True)
        drawn = [graphs[key] for key in test[: 2 * given.most]]
        first = answers(model, drawn, WAYS[0], [])
        kept = [place for place, e in enumerate(first) if e.status == "found"][: given.most]
        share = sum(e.status == "found" for e in first) / len(first)
        print(f"of {len(drawn)} drawn graphs, {100 * share:.0f} % have an answer; {len(kept)} are kept", flush=True)
        graphs, sizes = [drawn[place] for place in kept], [first[place].size for place in kept]
        draw = torch.Generator().manual_seed(0)
        cases = []
        for place, graph in enumerate(graphs):
            for count in NOISE:
                for _ in range(DRAWS):
                    made = noisy(model, graph, count, draw)
                    if made is not None:
                        cases.append(Case(place, count, made[1], made[0]))
        for way in WAYS:
            if way.name in rows or (given.only and way.name not in given.only):
                continue
            rows[way.name] = measure(model, graphs, cases, way, sizes)
            print(table({way.name: rows[way.name]})[-1], flush=True)
            if given.keep is not None:
                given.keep.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    lines = table({way.name: rows[way.name] for way in WAYS if way.name in rows})
    print(*lines, sep="\n")
    if given.write:
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        text = f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.split(END)[1]}"
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
