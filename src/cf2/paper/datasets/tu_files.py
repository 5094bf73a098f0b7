"""The raw files of TUDataset: lists of numbers, one line per node, edge or graph, checked against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, one_hot, remove_self_loops

from cf2.errors import CF2Error
from cf2.paper.datasets.storage import damaged, read_numbers, require_size


def read_graphs(name: str, directory: Path) -> list[Data]:
    """The graphs of a set: `x` where nodes have labels or attributes, `edge_attr` where edges have, and `y`."""
    files = _Files(name, directory)
    owner = files.read("graph_indicator", np.int64, columns=1)[:, 0]
    step = np.diff(owner, prepend=0)
    files.check("graph_indicator", np.isin(step, (0, 1)), "the number of the graph before, or the next one")
    files.check("graph_indicator", owner[:1] == 1, "the number of a graph, from 1 on,")
    graphs, nodes = int(owner[-1]), len(owner)
    ends = files.read("A", np.int64, columns=2)
    files.check("A", ((ends >= 1) & (ends <= nodes)).all(1), f"two of the nodes 1 to {nodes}")
    files.check("A", owner[ends[:, 0] - 1] == owner[ends[:, 1] - 1], "two nodes of the same graph")
    x, edge_attr = files.features("node", nodes), files.features("edge", len(ends))
    edge_index, edge_attr = remove_self_loops(torch.from_numpy(ends.T.copy() - 1), edge_attr)
    edge_index, edge_attr = coalesce(edge_index, edge_attr, nodes)
    labels = torch.from_numpy(files.labels(graphs))

    in_graph = torch.from_numpy(owner - 1)
    sizes, columns = in_graph.bincount(), in_graph[edge_index[0]].bincount(minlength=graphs)
    first, begin = (counts.cumsum(0) - counts for counts in (sizes, columns))
    made = []
    for number, (start, size, at, count) in enumerate(torch.stack([first, sizes, begin, columns], 1).tolist()):
        graph = Data(edge_index=edge_index[:, at : at + count] - start, y=labels[number : number + 1])
        graph.x = torch.ones(size, 1) if x is None else x[start : start + size]
        if edge_attr is not None:
            graph.edge_attr = edge_attr[at : at + count]
        made.append(graph)
    return made


class _Files:
    """The files of one set, by the part that each holds."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory

    def path(self, part: str) -> Path:
        return self.directory / f"{self.name}_{part}.txt"

    def read(self, part: str, kind: type, *, columns: int | None = None, rows: int | None = None) -> np.ndarray:
        """The numbers of a file [rows, columns], finite and as many as there must be."""
        found = read_numbers(self.path(part), kind, ",")
        if columns not in (None, found.shape[1]) or rows not in (None, len(found)):
            lines = "lines" if rows is None else f"{rows} lines"
            width = "" if columns is None else f" of {columns} number{'s' if columns > 1 else ''} each"
            raise damaged(self.path(part), lines + width, f"{len(found)} lines of {found.shape[1]}")
        self.check(part, np.isfinite(found).all(1), "finite numbers")
        return found

    def check(self, part: str, good: Any, expected: str) -> None:
        """Refuse a file with the first line that is not as expected."""
        wrong = np.flatnonzero(np.logical_not(good))
        if len(wrong):
            place = f"something else on line {wrong[0] + 1}"
            raise damaged(self.path(part), f"{expected} on each line", place)

    def features(self, what: str, rows: int) -> Tensor | None:
        """Attributes as they are, then each label as a column of 0 and 1 per value; None where there are none."""
        parts = []
        if self.path(f"{what}_attributes").exists():
            parts.append(torch.from_numpy(self.read(f"{what}_attributes", np.float32, rows=rows)))
        if self.path(f"{what}_labels").exists():
            for column in self.read(f"{what}_labels", np.int64, rows=rows).T:
                low, high = int(column.min()), int(column.max())
                require_size(rows, high - low + 1)
                parts.append(one_hot(torch.from_numpy(column - low)))
        return torch.cat(parts, 1) if parts else None

    def labels(self, graphs: int) -> np.ndarray:
        """The class of each graph, numbered from 0 in the order of the labels."""
        if self.path("graph_attributes").exists():
            raise CF2Error(f"Expected tu:{self.name} to have classes, and it is a regression set")
        values = self.read("graph_labels", np.int64, columns=1, rows=graphs)[:, 0]
        found: Any = np.unique(values, return_inverse=True)[1]
        return np.asarray(found, dtype=np.int64)
