"""Molecules from TUDataset, and Mutag₀ with its ground truth: the benzene rings that carry a nitro group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.paper.datasets import storage
from cf2.paper.datasets.dataset import Dataset
from cf2.paper.datasets.tu_files import read_graphs

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
