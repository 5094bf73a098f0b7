"""What types cost: the same graph and the same function of it, as a HeteroData and flattened.

    python benchmarks/typed.py [--rounds 9] [--fill benchmarks/NOTES.md]

Both models have the same weights: a matrix per relation and one for a node itself, in two layers. The typed one has a
layer for each relation in a HeteroConv, the flat one is an RGCNConv that reads `edge_type`. They give the same outputs,
so both are explained with the same trials and the same answers; that is checked. Typed and flat are explained in turn
in one process, after one round that does not count, and CPU time is taken. *model alone* is the ratio of the two models
themselves, run on the whole graph: what of the ratio is not ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, RGCNConv, SAGEConv

import cf2

TYPES = {"user": 600, "item": 400, "tag": 100}
WIDTH = 32
KEYS = range(0, 320, 8)
METHODS: dict[str, dict[str, Any]] = {
    "cf2": {},
    "cf2-relaxed": {"epochs": 100},
    "gnnexplainer": {"epochs": 100, "k": 5},
    "gradient": {"k": 5},
}
BEGIN, END = "<!-- typed: begin -->", "<!-- typed: end -->"


def graph(seed: int = 0) -> HeteroData:
    """Users, items and tags with two relations and their reverses."""
    made, data = torch.Generator().manual_seed(seed), HeteroData()
    for name, count in TYPES.items():
        data[name].x = torch.randn(count, WIDTH, generator=made)
    for src, relation, dst, count in (("user", "likes", "item", 1_500), ("item", "has", "tag", 500)):
        ends = torch.stack([torch.randint(TYPES[name], (count,), generator=made) for name in (src, dst)])
        ends = torch.unique(ends, dim=1)
        data[src, relation, dst].edge_index, data[dst, f"rev_{relation}", src].edge_index = ends, ends.flip(0)
    return data


class Flat(nn.Module):
    """Two layers with a matrix per relation, on one graph of all types."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(RGCNConv(WIDTH, WIDTH, relations) for _ in range(2))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index, edge_type).relu()
        return 5 * self.head(x)


class Typed(nn.Module):
    """The same function with a layer per relation, by types."""

    def __init__(self, flat: Flat, data: HeteroData) -> None:
        super().__init__()
        self.flat, self.layers = flat, nn.ModuleList()
        for known in flat.layers:
            convs = {kind: SAGEConv(WIDTH, WIDTH, root_weight=False, bias=False) for kind in data.edge_types}
            for relation, kind in enumerate(data.edge_types):
                convs[kind].lin_l.weight = nn.Parameter(known.weight[relation].t().clone())
            self.layers.append(HeteroConv(convs, aggr="sum"))

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        for layer, known in zip(self.layers, self.flat.layers):
            new = layer(x_dict, edge_index_dict)
            x_dict = {name: (new[name] + x @ known.root + known.bias).relu() for name, x in x_dict.items()}
        return 5 * self.flat.head(x_dict["user"])


def taken(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, and what was made."""
    started = time.process_time()
    made = run()
    return time.process_time() - started, made


def compare(rounds: int, typed: Callable[[], Any], flat: Callable[[], Any]) -> tuple[list[float], Any, Any]:
    """The ratios typed / flat of rounds in turn; the first, in which things are set up, does not count."""
    ratios, first, second = [], None, None
    for turn in range(rounds + 1):
        one, first = taken(typed)
        other, second = taken(flat)
        if turn:
            ratios.append(one / other)
    return ratios, first, second


def measure(rounds: int) -> list[tuple[str, float, list[float]]]:
    """For each method: evaluations per explanation, and the ratios."""
    torch.manual_seed(0)
    data = graph()
    one = data.to_homogeneous()
    flat = Flat(len(data.edge_types)).eval()
    typed = Typed(flat, data).eval()

    def many(run: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: [run() for _ in range(50)].pop()

    with torch.no_grad():
        ratios, first, second = compare(
            rounds,
            many(lambda: typed(data.x_dict, data.edge_index_dict)),
            many(lambda: flat(one.x, one.edge_index, one.edge_type)),
        )
    assert torch.allclose(first, second[: TYPES["user"]], atol=1e-4), "two functions"
    rows = [("model alone", 1.0, ratios)]
    for method, settings in METHODS.items():
        ratios, first, second = compare(
            rounds,
            lambda: cf2.explain(typed, data, KEYS, node_type="user", method=method, **settings),  # noqa: B023
            lambda: cf2.explain(flat, one, KEYS, method=method, **settings),  # noqa: B023
        )
        pairs = list(zip(first, second, strict=True))
        same = sum(a.size == b.size and a.sufficient == b.sufficient and a.necessary == b.necessary for a, b in pairs)
        assert same >= len(pairs) - 1, "other answers"
        spent = [sum(e.evaluations for e in found) for found in (first, second)]
        assert abs(spent[0] - spent[1]) <= 0.02 * spent[1], "other trials"
        rows.append((method, spent[1] / len(pairs), ratios))
    return rows


def table(rows: list[tuple[str, float, list[float]]]) -> str:
    lines = ["|  | runs | typed / flat | lowest | highest |", "|---|---|---|---|---|"]
    for name, runs, ratios in rows:
        lines.append(
            f"| {name} | {runs:,.0f} | {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="how often each is measured")
    parser.add_argument("--fill", type=Path, help="write the table between its marks on this page")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    made = table(measure(chosen.rounds))
    print(made)
    if chosen.fill:
        text = chosen.fill.read_text(encoding="utf-8")
        command = f"`python benchmarks/typed.py --rounds {chosen.rounds} --fill {chosen.fill.as_posix()}`"
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        chosen.fill.write_text(f"{before}{BEGIN}\n\n{command}\n\n{made}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
