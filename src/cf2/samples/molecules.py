"""Molecules: Mutagenicity and NCI1 of TUDataset, GraphAttribution's tasks, and Crippen's logP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, one_hot, remove_self_loops, unbatch, unbatch_edge_index

from cf2.errors import CF2Error, extra
from cf2.options import Key
from cf2.samples import storage
from cf2.samples.datasets import EXPLAINED, Dataset, Edges
from cf2.samples.storage import damaged

Root = str | Path | None

# -- TUDataset ------------------------------------------------------------------------------------------------

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
    folder = storage.raw_directory(root, "TUDataset", name)

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


# -- GraphAttribution and logP --------------------------------------------------------------------------------
# Atoms are numbered as RDKit's `MolFromSmiles` does; hydrogens are implicit. The bonds decide the class of a molecule
# as much as its atoms, so `x` says the element (for logP also its charge) and `edge_attr` the kind of the bond.

ATOMS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P")
CHARGES = (0, 1, -1)  # the logP of an atom depends on its charge: `crippen` has the columns of ATOMS for each
BONDS = {"SINGLE": 1.0, "DOUBLE": 2.0, "TRIPLE": 3.0, "AROMATIC": 1.5}  # the columns of `edge_attr`
THIRD = 3  # of the molecules are enough to learn logP from, and its atoms take RDKit a while
MAX_ATOMS = 1000  # of a molecule
ATTRIBUTION_SOURCE = (
    'a JSON object per line with "id", "smiles", "y", "truth" and "test", made of google-research/graph-attribution '
    "(docs/datasets.md has the form)."
)
Row = dict[str, Any]


def with_truth(name: str, classes: tuple[str, str], root: Root = None) -> Dataset:
    """Molecules with the sets of atoms that explain each: every benzene ring, or every choice of both groups."""
    path = storage.raw_file(root, "GraphAttribution", f"{name}.jsonl", ATTRIBUTION_SOURCE)
    rows = _rows(path)
    graphs = storage.kept(name, path, lambda: _classified(path, rows))

    def explanations(key: Key) -> list[Edges]:
        assert isinstance(key, int)
        return [truth_edges(graphs[key].edge_index, atoms) for atoms in rows[key]["truth"]]

    common = _with_bonds(graphs, rows) | {"explanations": explanations}
    return Dataset(name, "graph", graphs, 2, len(ATOMS), classes, (1,), atoms=ATOMS, **common)


def crippen(root: Root = None) -> Dataset:
    """Every third molecule of `benzene` with Crippen's logP, and what each atom contributes to it.

    `contribution` [atoms] is the atom's own share and that of the hydrogens on it; their sum is `y` [1].
    """
    path = storage.raw_file(root, "GraphAttribution", "benzene.jsonl", ATTRIBUTION_SOURCE)
    rows = _rows(path)[::THIRD]
    name = f"crippen-{THIRD}"
    graphs = storage.kept(name, path, lambda: _logp(path, rows))
    common = _with_bonds(graphs, rows) | {"output": "regression", "first": EXPLAINED}
    atoms = ATOMS * len(CHARGES)
    return Dataset("crippen", "graph", graphs, 1, len(atoms), (), (), atoms=atoms, **common)


def truth_edges(edge_index: Tensor, atoms: Sequence[int]) -> Tensor:
    """The bonds that a set of atoms stands for, bool [edges].

    Those between two of the atoms, and all those of an atom that has no bond to another one of the set, such as a
    fluoride.
    """
    inside = torch.zeros(int(edge_index.max()) + 1 if edge_index.numel() else 1, dtype=torch.bool)
    inside[[atom for atom in atoms if atom < len(inside)]] = True
    tail, head = edge_index
    between = inside[tail] & inside[head]
    alone = inside.clone()
    alone[tail[between]] = False
    return between | alone[tail] | alone[head]


def _with_bonds(graphs: list[Data], rows: list[Row]) -> dict[str, Any]:
    """Add to the graphs what is not kept in a file, bonds as columns and SMILES; the fields that these sets share."""
    bonds = torch.tensor(list(BONDS.values()))
    for graph, row in zip(graphs, rows):
        graph.edge_attr = (graph.bond[:, None] == bonds).float()
        graph.smiles = row["smiles"]
    tests = torch.tensor([number for number, row in enumerate(rows) if row["test"]], dtype=torch.long)
    return {"num_edge_features": len(BONDS), "test_ids": tests}


def _rows(path: Path) -> list[Row]:
    """The lines of a file, each with what it must have."""
    rows = []
    for number, line in enumerate(storage.read_raw(path).splitlines(), 1):
        row = storage.read_json(path, line, number)
        good = isinstance(row, dict) and isinstance(row.get("smiles"), str) and isinstance(row.get("test"), bool)
        good = good and row.get("y") in (0, 1) and _are_sets(row.get("truth")) and bool(row["truth"]) == bool(row["y"])
        if not good:
            expected = '"smiles", "y" (0 or 1), "truth" (sets of atoms exactly where y is 1) and "test" on each line'
            raise damaged(path, expected, f"something else on line {number}")
        rows.append(row)
    if not any(row["test"] for row in rows) or all(row["test"] for row in rows):
        raise damaged(path, "molecules for training and for testing", f"{len(rows)} lines of one kind")
    return rows


def _are_sets(truth: Any) -> bool:
    if not isinstance(truth, list):
        return False
    return all(isinstance(s, list) and s and all(type(a) is int and 0 <= a < MAX_ATOMS for a in s) for s in truth)


def _classified(path: Path, rows: list[Row]) -> list[Data]:
    graphs = []
    for number, row in enumerate(rows, 1):
        graph = _graph(path, _molecule(path, row["smiles"], number), number)
        last = max((atom for atoms in row["truth"] for atom in atoms), default=0)
        if last >= graph.num_nodes:
            raise damaged(path, f"atoms 0 to {graph.num_nodes - 1} on line {number}", f"atom {last}")
        graph.y = torch.tensor([row["y"]])
        graphs.append(graph)
    return graphs


def _logp(path: Path, rows: list[Row]) -> list[Data]:
    """The molecules with their logP and each atom's share of it."""
    graphs = []
    for number, row in enumerate(rows):
        line = THIRD * number + 1
        molecule = _molecule(path, row["smiles"], line)
        graph = _graph(path, molecule, line)
        charges = [atom.GetFormalCharge() for atom in molecule.GetAtoms()]
        if not set(charges) <= set(CHARGES):
            raise damaged(path, f"charges among {CHARGES} on line {line}", f"{sorted(set(charges))}")
        charged = torch.eye(len(CHARGES))[[CHARGES.index(charge) for charge in charges]]
        graph.x = (charged[:, :, None] * graph.x[:, None, :]).flatten(1)
        contribution = _contribution(molecule)
        graph.contribution, graph.y = contribution.float(), contribution.sum().float().view(1)
        graphs.append(graph)
    return graphs


def _contribution(molecule: Any) -> Tensor:
    """Each atom's share of the logP, and that of the hydrogens on it, float64 [atoms]."""
    from rdkit import Chem
    from rdkit.Chem import rdMolDescriptors

    whole, atoms = Chem.AddHs(molecule), molecule.GetNumAtoms()  # hydrogens come after all other atoms
    shares = [share for share, _ in rdMolDescriptors._CalcCrippenContribs(whole)]
    contribution = torch.tensor(shares[:atoms], dtype=torch.float64)
    for hydrogen, share in enumerate(shares[atoms:], atoms):
        contribution[whole.GetAtomWithIdx(hydrogen).GetNeighbors()[0].GetIdx()] += share
    return contribution


def _molecule(path: Path, smiles: str, line: int) -> Any:
    """RDKit's molecule of a SMILES, with as many atoms as there may be."""
    try:
        from rdkit import Chem
        from rdkit.rdBase import BlockLogs
    except ImportError as error:
        raise CF2Error(
            "Expected rdkit, which reads the SMILES of these molecules", got="none installed", do=extra("molecules")
        ) from error
    with BlockLogs():  # what it cannot read is one error of ours
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or not 0 < molecule.GetNumAtoms() <= MAX_ATOMS:
        raise damaged(path, f"a molecule on line {line}", repr(smiles[:60]))
    return molecule


def _graph(path: Path, molecule: Any, line: int) -> Data:
    atoms = [atom.GetSymbol() for atom in molecule.GetAtoms()]
    strange = sorted(set(atoms) - set(ATOMS))
    if strange:
        raise damaged(path, f"atoms among {', '.join(ATOMS)} on line {line}", ", ".join(strange))
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), str(b.GetBondType())) for b in molecule.GetBonds()]
    if not {kind for _, _, kind in bonds} <= set(BONDS):
        raise damaged(path, f"single, double, triple and aromatic bonds on line {line}", "others")
    both = sorted((a, b, BONDS[kind]) for tail, head, kind in bonds for a, b in ((tail, head), (head, tail)))
    ends = torch.tensor([(a, b) for a, b, _ in both], dtype=torch.long).view(-1, 2)
    x = torch.eye(len(ATOMS))[[ATOMS.index(atom) for atom in atoms]]
    return Data(x=x, edge_index=ends.t().contiguous(), bond=torch.tensor([order for _, _, order in both]))
