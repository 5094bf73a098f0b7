"""Molecules with the truth of each atom: the tasks of GraphAttribution, and Crippen's logP.

Atoms are numbered as RDKit's `MolFromSmiles` does; hydrogens are implicit. The class of a molecule is decided by its
bonds as much as by its atoms, so `x` says the element (for logP also its charge) and `edge_attr` the kind of the bond.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import CF2Error, extra
from cf2.options import Key
from cf2.samples import storage
from cf2.samples.datasets import EXPLAINED, Dataset, Edges

ATOMS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P")
CHARGES = (0, 1, -1)  # the logP of an atom depends on its charge: `crippen` has the columns of ATOMS for each
BONDS = {"SINGLE": 1.0, "DOUBLE": 2.0, "TRIPLE": 3.0, "AROMATIC": 1.5}  # the columns of `edge_attr`
THIRD = 3  # of the molecules are enough to learn logP from, and its atoms take RDKit a while
MOST_ATOMS = 1000  # of a molecule
SOURCE = (
    'a JSON object per line with "id", "smiles", "y", "truth" and "test", made of google-research/graph-attribution '
    "(docs/datasets.md has the form)."
)
Row = dict[str, Any]
Sets = list[list[int]]


def benzene(root: str | Path | None = None) -> Dataset:
    """12,000 molecules with a benzene ring or without one; each ring, and all together, explain it."""
    return _classified("benzene", ("no benzene", "benzene"), root)


def fluoride_carbonyl(root: str | Path | None = None) -> Dataset:
    """4,326 molecules: has it both a fluoride and a carbonyl? Every choice of some of each explains it."""
    return _classified("fluoride-carbonyl", ("not both", "fluoride and carbonyl"), root)


def crippen(root: str | Path | None = None) -> Dataset:
    """Every third molecule of `benzene` with Crippen's logP, and what each atom contributes to it.

    `contribution` [atoms] is the atom's own share and that of the hydrogens on it; their sum is `y` [1].
    """
    path = storage.raw_file(root, "GraphAttribution", "benzene.jsonl", SOURCE)
    rows = _rows(path)[::THIRD]
    tensors = storage.processed(f"crippen-{THIRD}", path.parent, [path.name], lambda: storage.pack(_logp(path, rows)))
    graphs = _finish(storage.unpack(tensors), rows)
    return Dataset(
        "crippen",
        "graph",
        graphs,
        1,
        len(ATOMS) * len(CHARGES),
        (),
        (),
        atoms=ATOMS * len(CHARGES),
        output="regression",
        num_edge_features=len(BONDS),
        test_ids=_tests(rows),
        first=EXPLAINED,
    )


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


def _classified(name: str, classes: tuple[str, str], root: str | Path | None) -> Dataset:
    path = storage.raw_file(root, "GraphAttribution", f"{name}.jsonl", SOURCE)
    rows = _rows(path)
    tensors = storage.processed(name, path.parent, [path.name], lambda: storage.pack(_graphs(path, rows)))
    graphs = _finish(storage.unpack(tensors), rows)

    def explanations(key: Key) -> list[Edges]:
        assert isinstance(key, int)
        return [truth_edges(graphs[key].edge_index, atoms) for atoms in rows[key]["truth"]]

    return Dataset(
        name,
        "graph",
        graphs,
        2,
        len(ATOMS),
        classes,
        (1,),
        atoms=ATOMS,
        num_edge_features=len(BONDS),
        test_ids=_tests(rows),
        explanations=explanations,
    )


def _tests(rows: list[Row]) -> Tensor:
    return torch.tensor([place for place, row in enumerate(rows) if row["test"]], dtype=torch.long)


def _finish(graphs: list[Data], rows: list[Row]) -> list[Data]:
    """Add what is not kept in a file: the bonds as columns, and the SMILES."""
    kinds = torch.tensor(list(BONDS.values()))
    for graph, row in zip(graphs, rows):
        graph.edge_attr = (graph.bond[:, None] == kinds).float()
        graph.smiles = row["smiles"]
    return graphs


def _rows(path: Path) -> list[Row]:
    """The lines of a file, each with what it must have."""
    rows = []
    for number, line in enumerate(storage.read_raw(path).splitlines(), 1):
        row = storage.read_json(path, line, number)
        good = isinstance(row, dict) and isinstance(row.get("smiles"), str) and isinstance(row.get("test"), bool)
        good = good and row.get("y") in (0, 1) and _are_sets(row.get("truth")) and bool(row["truth"]) == bool(row["y"])
        if not good:
            expected = '"smiles", "y" (0 or 1), "truth" (sets of atoms exactly where y is 1) and "test" on each line'
            raise storage.damaged(path, expected, f"something else on line {number}")
        rows.append(row)
    if not any(row["test"] for row in rows) or all(row["test"] for row in rows):
        raise storage.damaged(path, "molecules for training and for testing", f"{len(rows)} lines of one kind")
    return rows


def _are_sets(truth: Any) -> bool:
    if not isinstance(truth, list):
        return False
    return all(isinstance(s, list) and s and all(type(a) is int and 0 <= a < MOST_ATOMS for a in s) for s in truth)


def _graphs(path: Path, rows: list[Row]) -> list[Data]:
    """The molecules with their classes and, in `truth`, the edges of all their explanations together."""
    chem = _rdkit()
    made = []
    for number, row in enumerate(rows, 1):
        graph = _graph(chem, path, row["smiles"], number)
        atoms = sorted({atom for one in row["truth"] for atom in one})
        if atoms and atoms[-1] >= graph.num_nodes:
            raise storage.damaged(path, f"atoms 0 to {graph.num_nodes - 1} on line {number}", f"atom {atoms[-1]}")
        graph.y = torch.tensor([row["y"]])
        made.append(graph)
    return made


def _logp(path: Path, rows: list[Row]) -> list[Data]:
    """The molecules with their logP and each atom's share of it."""
    chem = _rdkit()
    from rdkit.Chem import rdMolDescriptors

    made = []
    for number, row in enumerate(rows, 1):
        graph = _graph(chem, path, row["smiles"], THIRD * (number - 1) + 1)
        graph.x = _charged(path, graph.x, chem.MolFromSmiles(row["smiles"]), THIRD * (number - 1) + 1)
        whole = chem.AddHs(chem.MolFromSmiles(row["smiles"]))  # hydrogens come after all other atoms
        shares = [share for share, _ in rdMolDescriptors._CalcCrippenContribs(whole)]
        contribution = torch.tensor(shares[: graph.num_nodes], dtype=torch.float64)
        for place, share in enumerate(shares[graph.num_nodes :], graph.num_nodes):
            contribution[whole.GetAtomWithIdx(place).GetNeighbors()[0].GetIdx()] += share
        graph.contribution, graph.y = contribution.float(), contribution.sum().float().view(1)
        made.append(graph)
    return made


def _charged(path: Path, x: Tensor, molecule: Any, number: int) -> Tensor:
    """The elements [atoms, 9] in the columns of each atom's charge [atoms, 27]."""
    charges = [atom.GetFormalCharge() for atom in molecule.GetAtoms()]
    if not set(charges) <= set(CHARGES):
        raise storage.damaged(path, f"charges among {CHARGES} on line {number}", f"{sorted(set(charges))}")
    place = torch.eye(len(CHARGES))[[CHARGES.index(charge) for charge in charges]]
    return (place[:, :, None] * x[:, None, :]).flatten(1)


def _graph(chem: Any, path: Path, smiles: str, number: int) -> Data:
    from rdkit.rdBase import BlockLogs

    with BlockLogs():  # what it cannot read is one error of ours
        molecule = chem.MolFromSmiles(smiles)
    atoms = [] if molecule is None else [atom.GetSymbol() for atom in molecule.GetAtoms()]
    if not 0 < len(atoms) <= MOST_ATOMS:
        raise storage.damaged(path, f"a molecule on line {number}", repr(smiles[:60]))
    strange = sorted(set(atoms) - set(ATOMS))
    if strange:
        raise storage.damaged(path, f"atoms among {', '.join(ATOMS)} on line {number}", ", ".join(strange))
    kinds = [str(bond.GetBondType()) for bond in molecule.GetBonds()]
    if not set(kinds) <= set(BONDS):
        raise storage.damaged(path, f"single, double, triple and aromatic bonds on line {number}", "others")
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), BONDS[kind]) for b, kind in zip(molecule.GetBonds(), kinds)]
    both = sorted([(a, b, order) for a, b, order in bonds] + [(b, a, order) for a, b, order in bonds])
    ends = torch.tensor([(a, b) for a, b, _ in both], dtype=torch.long).view(-1, 2)
    x = torch.eye(len(ATOMS))[[ATOMS.index(atom) for atom in atoms]]
    return Data(x=x, edge_index=ends.t().contiguous(), bond=torch.tensor([order for _, _, order in both]))


def _rdkit() -> Any:
    try:
        from rdkit import Chem
    except ImportError as error:
        raise CF2Error(
            "Expected rdkit, which reads the SMILES of these molecules", got="none installed", do=extra("molecules")
        ) from error
    return Chem
