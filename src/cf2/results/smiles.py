"""A SMILES as what is drawn of it: elements, bond orders, charges and hydrogens, atom by atom as the graph has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cf2.errors import CF2Error, extra, require


def read_smiles(text: Any, nodes: int, edges: np.ndarray, where: str, *, aromatic: bool = False) -> dict[str, Any]:
    """The molecule of a graph, ready for JSON; an error in words where it is not the graph's.

    Parameters
    ----------
    text : str
        The SMILES, whose atoms are the nodes in the order of their ids, as `torch_geometric.utils.from_smiles` and
        RDKit number them; with all hydrogens or without them.
    nodes, edges : int, ndarray [2, edges]
        The graph.
    where : str
        Which graph that is, for an error.
    aromatic : bool
        Whether the bonds of aromatic rings have the order 1.5; if not, 1 and 2 in turn, as they are drawn.

    Returns
    -------
    dict
        `labels`, an element per node; `bonds`, (u, v, order); `formal`, the charge and the hydrogens of each node.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        raise CF2Error("Expected rdkit to draw `smiles`", got="no such package", do=extra("molecules")) from error
    require(isinstance(text, str), f"Expected the SMILES of {where} to be text", got=repr(text)[:80])
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(text)
        require(molecule is not None, f"Expected a SMILES that RDKit can read for {where}", got=repr(text)[:80])
        found = molecule if molecule.GetNumAtoms() == nodes else Chem.AddHs(molecule)
    many = f"{molecule.GetNumAtoms()} atoms, or {found.GetNumAtoms()} with hydrogens, in {text[:60]!r}"
    cure = "Number the atoms as RDKit does for this SMILES."
    require(found.GetNumAtoms() == nodes, f"Expected an atom for each of the {nodes} nodes of {where}", got=many)
    if not aromatic:
        Chem.Kekulize(found, clearAromaticFlags=True)
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), b.GetBondTypeAsDouble()) for b in found.GetBonds()]
    ends = {(min(u, v), max(u, v)) for u, v in edges.T.tolist() if u != v}
    known = {(min(u, v), max(u, v)) for u, v, _ in bonds}
    other = sorted(ends ^ known)[:1]
    said = f"other edges, such as {other[0]}" if other else ""
    require(not other, f"Expected the edges of {where} to be the bonds of {text[:60]!r}", got=said, do=cure)
    atoms = list(found.GetAtoms())
    return {
        "labels": [atom.GetSymbol() for atom in atoms],
        "bonds": [list(bond) for bond in bonds],
        "formal": [[atom.GetFormalCharge(), atom.GetTotalNumHs()] for atom in atoms],
    }
