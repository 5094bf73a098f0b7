"""Molecules of TUDataset: Mutagenicity and NCI1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, one_hot, remove_self_loops, unbatch, unbatch_edge_index

from cf2.samples.datasets import Dataset
from cf2.samples.storage import Root, raw_directory

MUTAGEN = 0  # in these files label 0 is the mutagen
MUTAG_CLASSES = ("mutagen", "non-mutagen")
MUTAG_ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")
CARBON, OXYGEN, NITROGEN = 0, 1, 4


def mutag(root: Root = None) -> Dataset:
    """Mutagenicity, of which mutagens are explained."""
    graphs, classes = _read("Mutagenicity", root), MUTAG_CLASSES
    return Dataset("mutag", "graph", graphs, 2, len(MUTAG_ATOMS), classes, (MUTAGEN,), atoms=MUTAG_ATOMS)


def mutag0(root: Root = None) -> Dataset:
    """Mutag₀: the 448 mutagens with a benzene-NO₂, whose edges are the truth, and the 1,853 non-mutagens without."""
    everything = mutag(root)
    for graph in everything.graphs:
        graph.truth = benzene_nitro_edges(graph)
    graphs = [graph for graph in everything.graphs if bool(graph.truth.any()) == (int(graph.y) == MUTAGEN)]
    return replace(everything, name="mutag0", graphs=graphs)


def nci1(root: Root = None) -> Dataset:
    """Activity against lung cancer, which is explained; the atom types are not named."""
    graphs = _read("NCI1", root)
    return Dataset("nci1", "graph", graphs, 2, int(graphs[0].x.shape[1]), ("inactive", "active"), (1,))


def _read(name: str, root: Root) -> list[Data]:
    """The graphs of a set: `x` and `y` from the labels of nodes and graphs, and the bonds of Mutagenicity.

    numpy parses the files some six times as fast as torch_geometric's reader.
    """
    folder = raw_directory(root, "TUDataset", name)

    def numbers(part: str) -> Tensor:
        return torch.from_numpy(np.loadtxt(folder / f"{name}_{part}.txt", np.int64, delimiter=","))

    owner, bond = numbers("graph_indicator") - 1, None
    if name == "Mutagenicity":
        bond = numbers("edge_labels") + 1  # the labels 0, 1, 2 are valences 1, 2, 3
    edge_index, bond = remove_self_loops(numbers("A").t() - 1, bond)
    edge_index, bond = coalesce(edge_index, bond, len(owner), reduce="max")
    labels = numbers("node_labels")
    graphs = int(owner.max()) + 1  # the last of them may have no edges
    parts: dict[str, Any] = {
        "x": unbatch(one_hot(labels - labels.min()), owner),
        "y": torch.split(numbers("graph_labels"), 1),
        "edge_index": [part.contiguous() for part in unbatch_edge_index(edge_index, owner, graphs)],
    }
    if bond is not None:
        parts["bond"] = unbatch(bond, owner[edge_index[0]], batch_size=graphs)
    return [Data(**dict(zip(parts, values))) for values in zip(*parts.values(), strict=True)]


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
    atoms, columns = graph.x.argmax(dim=1).tolist(), graph.edge_index.t().tolist()
    molecule = nx.Graph(columns)
    carbons = molecule.subgraph([atom for atom in molecule if atoms[atom] == CARBON])
    chosen: set[frozenset[int]] = set()
    for nitrogen in [atom for atom in molecule if atoms[atom] == NITROGEN]:
        oxygens = [o for o in molecule[nitrogen] if atoms[o] == OXYGEN and molecule.degree(o) == 1]
        if len(oxygens) != 2:
            continue
        for carbon in [atom for atom in molecule[nitrogen] if atom in carbons]:
            cycles = nx.simple_cycles(carbons, length_bound=6)
            rings = [cycle for cycle in cycles if len(cycle) == 6 and carbon in cycle]
            for ring in rings:
                bonds = [*zip(ring, ring[1:] + ring[:1]), *((nitrogen, other) for other in (carbon, *oxygens))]
                chosen |= {frozenset(bond) for bond in bonds}
    return torch.tensor([frozenset(column) in chosen for column in columns], dtype=torch.bool)
