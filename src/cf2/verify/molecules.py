"""Whether an edited molecule is one: RDKit can sanitise it, so its valences hold and its rings can be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from cf2.errors import CF2Error, extra, require

CHARGED = {("N", 4): 1, ("O", 3): 1, ("S", 3): 1, ("P", 4): 1, ("B", 4): -1}  # ions that data sets write without charge


def molecule_check(atoms: Sequence[str] | None) -> Callable[[Data], bool]:
    """A function that says of a Data object whether it is a valid molecule.

    `atoms` names the element of every feature column; bonds are in `bond` (1, 2, 3, or 1.5 for aromatic ones), one
    number per column of `edge_index`.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        cure = extra("molecules")
        raise CF2Error("Expected rdkit for valid='molecule'", got="no such package", do=cure) from error
    require(
        atoms is not None,
        "Expected `atoms`, the element of every feature column, for valid='molecule'",
        got="none",
        do='Pass atoms=("C", "N", …).',
    )
    assert atoms is not None
    known = {Chem.GetPeriodicTable().GetElementSymbol(number) for number in range(1, 119)}
    wrong = [atom for atom in atoms if atom not in known]
    require(not wrong, "Expected element symbols in `atoms`", got=", ".join(wrong[:3]))
    names = tuple(atoms)

    def check(graph: Data) -> bool:
        with rdBase.BlockLogs():  # what is refused is not worth a line each
            try:
                Chem.SanitizeMol(_molecule(Chem, graph, names))
            except (ValueError, RuntimeError):
                return False
            return True

    return check


def _molecule(Chem: Any, graph: Data, atoms: tuple[str, ...]) -> Any:
    """The molecule of a graph with one-hot elements; what it lacks in hydrogen, RDKit puts there."""
    require(
        graph.x.size(1) >= len(atoms) and bool((graph.x[:, : len(atoms)].sum(1) == 1).all()),
        f"Expected features that say of every node which of {len(atoms)} elements it is",
        got=f"shape {tuple(graph.x.shape)} with other values",
    )
    require("bond" in graph, "Expected `bond`, the order of every bond, for valid='molecule'", got="none")
    kinds = {1.0: Chem.BondType.SINGLE, 2.0: Chem.BondType.DOUBLE, 3.0: Chem.BondType.TRIPLE}
    kinds[1.5] = Chem.BondType.AROMATIC
    made = Chem.RWMol()
    elements = [atoms[place] for place in graph.x[:, : len(atoms)].nonzero()[:, 1].tolist()]
    valence = torch.zeros(len(elements), dtype=torch.double)
    for element in elements:
        made.AddAtom(Chem.Atom(element))
    for (a, b), order in zip(graph.edge_index.t().tolist(), graph.bond.tolist()):
        if a != b and made.GetBondBetweenAtoms(a, b) is None:
            made.AddBond(a, b, kinds.get(float(order), Chem.BondType.SINGLE))
            valence[[a, b]] += float(order)
    for place, (element, total) in enumerate(zip(elements, valence.tolist())):
        charge = CHARGED.get((element, int(total)), 0)
        if charge:
            made.GetAtomWithIdx(place).SetFormalCharge(charge)
    return made
