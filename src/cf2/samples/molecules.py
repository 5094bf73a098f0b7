"""The raw files of TUDataset: lists of numbers, one line per node, edge or graph, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, one_hot, remove_self_loops

from cf2.errors import CF2Error
from cf2.samples import storage
from cf2.samples.datasets import Dataset
from cf2.samples.storage import damaged, read_numbers, require_size

# -- tu files --------------------------------------------------------------------------------------------


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


# -- molecules -------------------------------------------------------------------------------------------


MUTAGEN = 0  # in these files label 0 is the mutagen
ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")
CARBON, OXYGEN, NITROGEN = 0, 1, 4

DIGESTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        name: {f"{name}_{part}.txt": digest for part, digest in parts.items()}
        for name, parts in {
            "Mutagenicity": {
                "A": "ae85e22b4b898ebd819d2ed3adc8f06a7bf1cda746b333086472d19b36711145",
                "graph_indicator": "88b2d83ff10fad75b3280654061e965976f74e75620058c371ed23567236b4bc",
                "graph_labels": "b604c7dcbfdf89193901e32abdcbf9b5b92137414ce22231f00ed65d48ec48f9",
                "node_labels": "b429ec418c831d02dc3088b2fe08d11214627850d2bbdacfa9797c0510e70ae7",
            },
            "NCI1": {
                "A": "2c028eda59a5fe96e2265a63d9ac236901bd9a7dc658498be13cd704a703076d",
                "graph_indicator": "ffe5acfa754b057d5ce0dc725c5aadb631628161886cc040d38c719635257dc5",
                "graph_labels": "fae44681e70113f496256ae87eaac33b7836e3a97fe8e023933b84fde6a5c8a2",
                "node_labels": "dc0a22b6cbff0c939de00373e823977ba32b358f560e4288d7602f7b51407ee2",
            },
        }.items()
    }
)


def mutag(root: str | Path | None = None) -> Dataset:
    """Mutagenicity: 4,337 molecules; label 0 is the mutagen."""
    graphs = _read("Mutagenicity", root)
    return Dataset("mutag", "graph", graphs, 2, len(ATOMS), ("mutagen", "non-mutagen"), (MUTAGEN,), atoms=ATOMS)


def mutag0(root: str | Path | None = None) -> Dataset:
    """Mutag₀: the 448 mutagens with a benzene-NO₂ and the 1,853 non-mutagens without; its edges are true.

    The labels are those of Mutag, so the class to explain is 0, the mutagen.
    """
    directory = _raw("Mutagenicity", root)
    tensors = storage.processed("mutag0", directory, list(DIGESTS["Mutagenicity"]), lambda: _make_mutag0(root))
    graphs = storage.unpack(tensors)
    return Dataset("mutag0", "graph", graphs, 2, len(ATOMS), ("mutagen", "non-mutagen"), (MUTAGEN,), atoms=ATOMS)


def nci1(root: str | Path | None = None) -> Dataset:
    """NCI1: 4,110 compounds, active (1) or not against lung cancer; the 37 atom types are not named."""
    graphs = _read("NCI1", root)
    return Dataset("nci1", "graph", graphs, 2, 37, ("inactive", "active"), (1,))


def tu(name: str, root: str | Path | None = None) -> Dataset:
    """Any classification set of TUDataset; a graph without node features gets a constant one."""
    graphs = _read(name, root)
    classes = int(torch.cat([graph.y for graph in graphs]).max()) + 1
    width = int(graphs[0].x.shape[1])
    numbers = tuple(range(classes))
    return Dataset(f"tu:{name}", "graph", graphs, classes, width, tuple(str(i) for i in numbers), numbers)


def benzene_nitro_table(dataset: Dataset) -> dict[str, int]:
    """How many molecules of each label have a benzene-NO₂, as in the paper's table."""
    table = {f"{label}_{has}": 0 for label in ("mutagen", "non_mutagen") for has in ("with", "without")}
    for graph in dataset.graphs:
        label = "mutagen" if int(graph.y) == MUTAGEN else "non_mutagen"
        table[f"{label}_{'with' if bool(benzene_nitro_edges(graph).any()) else 'without'}"] += 1
    return table


def benzene_nitro_edges(graph: Data) -> Tensor:
    """The edges of each benzene-NO₂ of a molecule, as a bool per column of `edge_index`.

    The group is a nitrogen with exactly two terminal oxygens and a carbon neighbour that lies on a six-ring
    of carbons; its edges are the ring, the C-N bond and the two N-O bonds.
    """
    atoms = graph.x.argmax(dim=1).tolist()
    columns = graph.edge_index.t().tolist()
    around: list[list[int]] = [[] for _ in atoms]
    for a, b in columns:
        around[a].append(b)
    found: set[frozenset[int]] = set()
    for nitrogen, element in enumerate(atoms):
        if element != NITROGEN:
            continue
        oxygens = [o for o in around[nitrogen] if atoms[o] == OXYGEN and len(around[o]) == 1]
        if len(oxygens) != 2:
            continue
        for carbon in around[nitrogen]:
            ring = _carbon_rings(carbon, atoms, around) if atoms[carbon] == CARBON else set()
            if ring:
                found |= ring | {frozenset((nitrogen, other)) for other in (carbon, *oxygens)}
    return torch.tensor([frozenset(column) in found for column in columns], dtype=torch.bool)


def _carbon_rings(start: int, atoms: list[int], around: list[list[int]]) -> set[frozenset[int]]:
    """The edges of every six-ring of carbons through `start`."""
    edges: set[frozenset[int]] = set()
    paths = [[start]]
    for _ in range(5):
        paths = [[*p, n] for p in paths for n in around[p[-1]] if atoms[n] == CARBON and n not in p]
    for path in paths:
        if start in around[path[-1]]:
            edges |= {frozenset(pair) for pair in zip(path, path[1:] + path[:1])}
    return edges


def _make_mutag0(root: str | Path | None) -> dict[str, Tensor]:
    kept = []
    for graph in _read("Mutagenicity", root):
        graph.truth = benzene_nitro_edges(graph)
        if bool(graph.truth.any()) == (int(graph.y) == MUTAGEN):
            kept.append(graph)
    return storage.pack(kept)


def _raw(name: str, root: str | Path | None) -> Path:
    digests = DIGESTS.get(name, {})
    files = list(digests) or [f"{name}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels")]
    return storage.raw_directory(root, "TUDataset", name, files, digests, lambda: _urls(name))


def _read(name: str, root: str | Path | None) -> list[Data]:
    directory = _raw(name, root)
    files = sorted(path.name for path in directory.glob(f"{name}_*.txt") if "readme" not in path.name.lower())
    return storage.unpack(storage.processed(f"tu-{name}", directory, files, lambda: _parse(name, directory)))


def _parse(name: str, directory: Path) -> dict[str, Tensor]:
    graphs = read_graphs(name, directory)
    if name == "Mutagenicity":  # its edge labels 0, 1, 2 are valences 1, 2, 3
        for graph in graphs:
            if graph.edge_attr is not None:
                graph.bond = graph.edge_attr.argmax(1) + 1
    return storage.pack(graphs)


def _urls(name: str) -> list[str]:
    from torch_geometric.datasets import TUDataset  # slow to import, and only downloads need it

    return [f"{TUDataset.url}/{name}.zip"]
