"""What one call costs: a single molecule, the first and the second on a large graph, and a hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

import cf2
from bench import rivals
from bench.graphs import copies, model_for, molecules
from bench.timing import cpu, in_fresh_process

ONE_BY_ONE = 12  # molecules
DEFAULT = 100  # epochs of torch_geometric's GNNExplainer where none are asked for
NEIGHBOURS, FURTHER, CHOSEN = 50_000, 20_000, 2_000


def single(root: str | Path | None = None) -> dict[str, float]:
    """One molecule per call of `cf2.explain` against torch_geometric's GNNExplainer with its default epochs."""
    source = molecules(root)
    if source is None:
        return {}
    keys = source.keys()[:ONE_BY_ONE]

    def explain(effort: str, some: Sequence[Any]) -> None:
        for key in some:
            cf2.explain(source.model, [source.graphs[key]], effort=effort)

    explain("quick", keys[:1])  # whatever is done once is done
    looped = rivals.gnnexplainer(source, keys, DEFAULT)
    figures = {"single_gnnexplainer100_seconds": looped}
    for effort in ("standard", "quick"):
        seconds = cpu(lambda effort=effort: explain(effort, keys)) / len(keys)  # type: ignore[misc]
        figures |= {f"single_{effort}_seconds": seconds, f"single_{effort}_vs_gnnexplainer100": looped / seconds}
    return figures


def first_call(root: str | Path | None = None, blocks: int = 10) -> dict[str, float]:
    """What the first and the second call on a graph of 10⁶ directed edges spend beside the search itself.

    The search is timed on the same node of the first block alone, in a session that has measured everything.
    """
    (small, near), (large, far) = copies(1), copies(blocks)
    model = model_for()
    kept = cf2.Explainer(model, _data(small))
    kept.explain(nodes=[int(near[1])])
    search = cpu(lambda: kept.explain(nodes=[int(near[0])]))
    session = cf2.Explainer(model, _data(large))
    first = cpu(lambda: session.explain(nodes=[int(far[0])]))
    again = cpu(lambda: session.explain(nodes=[int(far[0])]))
    return {"first_call_overhead_seconds": first - search, "second_call_overhead_seconds": max(again - search, 0.0)}


def hub(root: str | Path | None = None) -> dict[str, float]:
    """A node with 50,000 neighbours, with 2,000 units that may be chosen: CPU seconds, and the peak of its process."""
    seconds, peak = in_fresh_process(_hub_seconds, NEIGHBOURS, FURTHER, CHOSEN)
    return {"hub_50000_seconds": seconds, "hub_50000_mebibytes": peak}


def _hub_seconds(neighbours: int, further: int, chosen: int) -> float:
    made = torch.Generator().manual_seed(0)
    star = torch.stack([torch.zeros(neighbours, dtype=torch.long), torch.arange(1, neighbours + 1)])
    among = torch.randint(1, neighbours + 1, (2, further), generator=made)
    ends = torch.cat([star, among[:, among[0] != among[1]]], 1)
    x = torch.randn(neighbours + 1, 10, generator=made)
    data = Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))
    options = {"max_units": chosen, "reduce": "gradient"}
    return cpu(lambda: cf2.explain(model_for(), data, nodes=[0], **options))


def _data(graph: Any) -> Data:
    return Data(x=graph.x, edge_index=graph.edge_index)
