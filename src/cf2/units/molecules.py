"""Whether an edited molecule is one: RDKit can sanitise it, so its valences hold and its rings can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch_geometric.data import Data

from cf2.errors import CF2Error, extra, require, shown
from cf2.graphs.graph import Instance, Role
from cf2.units.edits import CHANGE, EDGE_KINDS
from cf2.units.kinds import InstanceUnits

CHARGED = {("N", 4): 1, ("O", 3): 1, ("S", 3): 1, ("P", 4): 1, ("B", 4): -1}  # ions that data sets write without charge
ORDERS = {1.0: "SINGLE", 1.5: "AROMATIC", 2.0: "DOUBLE", 3.0: "TRIPLE"}  # of bonds, with the names of RDKit
CHARGE = "formal_charge"  # the attribute of a graph with the charge of every atom


def read_smiles(text: Any, nodes: int, edges: np.ndarray, where: str, *, aromatic: bool = False) -> dict[str, Any]:
    """The molecule of a graph, ready for JSON: an element per node, bonds (u, v, order), charges with hydrogens.

    Nodes are the atoms in RDKit's order, with all hydrogens or without them. Bonds of aromatic rings have the order
    1.5 if `aromatic`, else 1 and 2 in turn, as they are drawn. `where` names the graph in errors.
    """
    Chem = _rdkit("`smiles`")
    require(isinstance(text, str), f"Expected the SMILES of {where} to be text", got=shown(text, 80))
    molecule = _parsed(text, nodes)
    require(molecule is not None, f"Expected a SMILES that RDKit can read for {where}", got=shown(text, 80))
    count = molecule.GetNumAtoms()
    many = f"{Chem.RemoveHs(molecule).GetNumAtoms()} atoms, or {count} with hydrogens, in {text[:60]!r}"
    require(count == nodes, f"Expected an atom for each of the {nodes} nodes of {where}", got=many)
    if not aromatic:
        Chem.Kekulize(molecule, clearAromaticFlags=True)
    bonds = [[b.GetBeginAtomIdx(), b.GetEndAtomIdx(), b.GetBondTypeAsDouble()] for b in molecule.GetBonds()]
    drawn = {(min(u, v), max(u, v)) for u, v in edges.T.tolist() if u != v}
    other = sorted(drawn ^ {(min(u, v), max(u, v)) for u, v, _ in bonds})[:1]
    require(
        not other,
        f"Expected the edges of {where} to be the bonds of {text[:60]!r}",
        got=f"other edges, such as {other[0]}" if other else "",
        do="Number the atoms as RDKit does for this SMILES.",
    )
    atoms = list(molecule.GetAtoms())
    return {
        "labels": [atom.GetSymbol() for atom in atoms],
        "bonds": bonds,
        "formal": [[atom.GetFormalCharge(), atom.GetTotalNumHs()] for atom in atoms],
    }


def _rdkit(use: str) -> Any:
    try:
        from rdkit import Chem
    except ImportError as error:
        raise CF2Error(f"Expected rdkit for {use}", got="no such package", do=extra("molecules")) from error
    return Chem


def _parsed(text: str, nodes: int | None = None) -> Any:
    """The molecule of a SMILES, with hydrogens as atoms if it has not as many `nodes` without.

    None if it is none, or where RDKit is not there.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        return None
    with rdBase.BlockLogs():
        try:
            plain = Chem.MolFromSmiles(text)
        except (RuntimeError, OverflowError, TypeError):  # a text that C++ cannot take
            return None
        return Chem.AddHs(plain) if plain is not None and nodes not in (None, plain.GetNumAtoms()) else plain


class Molecules(Sequence[Any]):
    """Graphs, each with the `bond` and the charges that its `smiles` says, if it has that and no `bond` itself."""

    def __init__(self, graphs: Sequence[Any]) -> None:
        self.graphs = graphs

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, key: Any) -> Any:
        return _with_bonds(self.graphs[key], f"graph {key}")


def _with_bonds(graph: Any, where: str) -> Any:
    if not isinstance(graph, Data) or not isinstance(graph.get("smiles"), str) or "bond" in graph:
        return graph
    molecule = read_smiles(graph.smiles, int(graph.num_nodes or 0), graph.edge_index.cpu().numpy(), where)
    orders = {frozenset((u, v)): order for u, v, order in molecule["bonds"]}
    graph = graph.clone()
    graph.bond = torch.tensor([orders[frozenset(pair)] for pair in graph.edge_index.t().tolist()])
    graph[CHARGE] = torch.tensor([charge for charge, _ in molecule["formal"]])
    return graph


def molecule_check(atoms: Sequence[str] | None, charges: bool = True) -> Callable[[Data], bool]:
    """A function that says of a Data object whether it is a valid molecule.

    `atoms` names the element of every feature column; bonds are in `bond` (1, 2, 3, or 1.5 for aromatic ones), one
    number per column of `edge_index`. An edited graph has the one that it was made of as `before`. Without `charges`,
    no atom may get a charge that it had not there.
    """
    Chem = _rdkit("valid='molecule'")
    if atoms is None:
        expected = "Expected `atoms`, the element of every feature column, for valid='molecule'"
        raise CF2Error(expected, got="none", do='Pass atoms=("C", "N", …).')
    elements = {Chem.GetPeriodicTable().GetElementSymbol(number) for number in range(1, 119)}
    wrong = [atom for atom in atoms if atom not in elements]
    require(not wrong, "Expected element symbols in `atoms`", got=", ".join(wrong[:3]))
    names = tuple(atoms)
    return lambda graph: molecule_of(graph, names, charges) is not None


def check_orders(instance: Instance) -> None:
    """Refuse bonds in another encoding, such as the numbers of `from_smiles`: they would be read as other bonds."""
    expected = "Expected `smiles`, or `bond` with the order of every bond, for valid='molecule'"
    require("bond" in instance.extras, expected, got="none")
    other = [order for order in torch.unique(instance.extras["bond"][1]).tolist() if order not in ORDERS]
    expected = "Expected `bond` to hold orders of bonds: 1, 2, 3, or 1.5 for aromatic ones"
    require(not other, expected, got=", ".join(f"{order:g}" for order in other[:3]))


def molecule_of(graph: Data, atoms: tuple[str, ...], charges: bool = True) -> Any:
    """The molecule of a graph with one-hot elements and orders of bonds, None where RDKit does not take it.

    What atoms lack in hydrogen, RDKit puts there. See `molecule_check`.
    """
    molecule = _built(graph, atoms)
    before, touched = graph.get("before"), set(range(molecule.GetNumAtoms()))
    if before is not None:
        was = {int(node): atom for node, atom in zip(before.node_ids, _built(before, atoms).GetAtoms())}
        for node, atom in zip(graph.node_ids.tolist(), molecule.GetAtoms()):
            atom.SetFormalCharge(was[node].GetFormalCharge())
            if (atom.GetSymbol(), _bonds_of(atom)) == (was[node].GetSymbol(), _bonds_of(was[node])):
                touched.discard(atom.GetIdx())
    return _settled(molecule, touched, charges)


def molecule_after(graph: Data, before: Data, atoms: tuple[str, ...]) -> Any:
    """The molecule of an edited graph of the user's; None where its features are not elements, or RDKit refuses it."""
    graph, before = graph.clone(), before.clone()
    before.node_ids = torch.arange(int(before.num_nodes or 0))
    graph.node_ids, graph.before = graph.get("n_id", before.node_ids), before
    try:
        return molecule_of(graph, atoms)
    except (CF2Error, ImportError):
        return None


def _built(graph: Data, atoms: tuple[str, ...]) -> Any:
    """The atoms and bonds of a graph, with the charges that it says, or that atoms with so many bonds have."""
    from rdkit import Chem

    require(
        graph.x.size(1) >= len(atoms) and bool((graph.x[:, : len(atoms)].sum(1) == 1).all()),
        f"Expected one-hot features of {len(atoms)} elements for every node",
        got=f"shape {tuple(graph.x.shape)} with other values",
    )
    molecule = Chem.RWMol()
    for place in graph.x[:, : len(atoms)].nonzero()[:, 1].tolist():
        molecule.AddAtom(Chem.Atom(atoms[place]))
    for (a, b), order in zip(graph.edge_index.t().tolist(), graph.bond.tolist()):
        if a != b and molecule.GetBondBetweenAtoms(a, b) is None:
            molecule.AddBond(a, b, getattr(Chem.BondType, ORDERS[order]))
    given = graph.get(CHARGE)
    for atom in molecule.GetAtoms():
        charge = CHARGED.get((atom.GetSymbol(), int(_bonds_of(atom))), 0)
        atom.SetFormalCharge(charge if given is None else int(given[atom.GetIdx()]))
    return molecule


def _bonds_of(atom: Any) -> float:
    """The orders of the bonds of an atom together."""
    return float(sum(bond.GetBondTypeAsDouble() for bond in atom.GetBonds()))


def _settled(molecule: Any, touched: Iterable[int], charges: bool) -> Any:
    """A molecule with the charges and hydrogens that edits at some atoms imply; None where it is none.

    An atom that an edit touches is neutral where it can be: with one bond less, N⁺ is an amine. Without `charges`, none
    may get a charge that it had not before.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():  # what is refused is not worth a line each
        for atom in map(molecule.GetAtomWithIdx, touched):
            needed = CHARGED.get((atom.GetSymbol(), int(_bonds_of(atom))), 0)
            if needed and needed != atom.GetFormalCharge() and not charges:
                return None
            atom.SetFormalCharge(needed)
            atom.SetNoImplicit(False)
            atom.SetNumExplicitHs(0)
        try:
            Chem.SanitizeMol(molecule)
        except (ValueError, RuntimeError):
            return None
    return molecule


def edited_molecule(
    text: str,
    edits: Iterable[tuple[Any, ...]],
    *,
    nodes: int | None = None,
    atoms: Sequence[str] = (),
    order: float = 1,
    charges: bool = True,
) -> Any:
    """The molecule of a SMILES after edits (`Explanation.edits`), None where RDKit does not take it, or is not there.

    A removed atom leaves hydrogens at its neighbours. An added bond has an `order`; a change of element needs `atoms`,
    the element of every feature column. `nodes` says whether hydrogens are atoms. Atoms keep their numbers as the
    property "atom".
    """
    plain = _parsed(text, nodes)
    if plain is None or nodes not in (None, plain.GetNumAtoms()):
        return None
    from rdkit import Chem

    molecule, gone, touched = Chem.RWMol(plain), set[int](), set[int]()
    Chem.Kekulize(molecule, clearAromaticFlags=True)  # an opened ring is not aromatic any more
    for atom in molecule.GetAtoms():
        atom.SetIntProp("atom", atom.GetIdx())
    for edit, place, *values in edits:
        if edit == "change":
            if place[1] >= len(atoms):
                return None  # a change of something else than the element
            touched.add(place[0])
            if values[1]:
                number = Chem.GetPeriodicTable().GetAtomicNumber(atoms[place[1]])
                molecule.GetAtomWithIdx(place[0]).SetAtomicNum(number)
        elif len(place) == 1:
            gone.add(place[0])
            touched |= {atom.GetIdx() for atom in molecule.GetAtomWithIdx(place[0]).GetNeighbors()}
        else:
            molecule.RemoveBond(*place)
            touched |= set(place)
            if edit == "add":
                molecule.AddBond(place[0], place[1], getattr(Chem.BondType, ORDERS[order]))
    left = [atom.GetIdx() for atom in molecule.GetAtoms() if atom.GetIdx() not in gone]
    for number in sorted(gone, reverse=True):
        molecule.RemoveAtom(number)
    return _settled(molecule, [left.index(number) for number in touched - gone], charges) if left else None


def smiles_of(molecule: Any) -> str | None:
    """The SMILES of a molecule, if it is one."""
    if molecule is None:
        return None
    from rdkit import Chem

    return str(Chem.MolToSmiles(molecule))


def smarts_of(text: str, atoms: Sequence[int], bonds: Sequence[tuple[int, int]] | None) -> str | None:
    """The SMARTS of some atoms of a SMILES and the bonds that are named, or all between them; None without RDKit."""
    molecule = _parsed(text)
    if molecule is None or not len(atoms):
        return None
    from rdkit import Chem

    molecule = molecule if max(atoms) < molecule.GetNumAtoms() else Chem.AddHs(molecule)
    if max(atoms) >= molecule.GetNumAtoms():
        return None  # a file may hold the SMILES of another graph
    between = [molecule.GetBondBetweenAtoms(*pair) for pair in bonds or ()]
    listed = None if bonds is None else sorted({bond.GetIdx() for bond in between if bond is not None})
    written: str = Chem.MolFragmentToSmarts(molecule, list(atoms), listed)
    return written


# -- valences --------------------------------------------------------------------------------------------


COUNTED_KINDS = {*EDGE_KINDS, CHANGE.unit_kind}  # of which it is known what they do to the bonds of an atom
MAX_MENDED_BONDS = 2  # bonds that an atom may lose to make room for one edit
# RDKit reads some of these as charges, as in a nitro group.
MAX_REWRITTEN_BONDS = {"N": 5, "P": 7, "Cl": 7, "Br": 7, "I": 7}


def bearable(atoms: Sequence[str], charges: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """What RDKit says of each element [elements].

    How many bonds an atom of it bears, with `charges` also as an ion, beyond how many it is refused where no metal is
    around, and whether it is a metal: a carbon with five bonds, one of them to such an atom, is accepted, because that
    one is read as dative.
    """
    from rdkit import Chem, rdBase

    table = Chem.GetPeriodicTable()
    bears, most = [], []
    for atom in atoms:
        valences = list(table.GetValenceList(atom))
        top = 99 if -1 in valences else max(valences)
        ion = top + 1 if charges and CHARGED.get((atom, top + 1)) else top
        bears.append(ion)
        most.append(max(ion, MAX_REWRITTEN_BONDS.get(atom, 0)))
    with rdBase.BlockLogs():
        crowded = [Chem.MolFromSmiles(f"CC(#C)[{atom}]", sanitize=False) for atom in atoms]
        metal = [Chem.SanitizeMol(made, catchErrors=True) == Chem.SanitizeFlags.SANITIZE_NONE for made in crowded]
    return torch.tensor(bears, dtype=torch.float), torch.tensor(most, dtype=torch.float), torch.tensor(metal)


@dataclass(frozen=True, eq=False)
class Valences:
    """The atoms of the instances of a pack, and what each unit does to them; padded to the most atoms and units."""

    element: Tensor  # [B, N], the place of the element of each atom
    bonds: Tensor  # [B, N], the orders of its bonds together, as the graph is
    end: Tensor  # [B, U, 2], the atoms at a unit's bond; of a change, its atom twice
    order: Tensor  # [B, U], what a unit adds to the bonds of its atoms
    becomes: Tensor  # [B, U], the element that a change makes of its atom, -1 for other units
    removes: Tensor  # [B, U] bool, bonds that may be removed
    light: Tensor  # [B, U] bool, those to hydrogen
    bears: Tensor  # [elements]
    most: Tensor  # [elements]
    metal: Tensor  # [elements] bool, whose bonds RDKit does not count where their other atom has too many

    @staticmethod
    def of(
        atoms: Sequence[str],
        instances: Sequence[Instance],
        tables: Sequence[InstanceUnits],
        may: Tensor,
        charges: bool = True,
    ) -> Valences | None:
        """The valences of instances with units [B, U] that `may` be chosen; None where not all units are known."""
        if not COUNTED_KINDS.issuperset(tables[0].names) or any(i.directed for i in instances):
            return None
        device = may.device
        parts = [_counted(i, t, len(atoms)) for i, t in zip(instances, tables)]
        element, bonds, end, order, becomes = (
            pad_sequence(list(column), batch_first=True).to(device) for column in zip(*parts)
        )
        hydrogen = atoms.index("H") if "H" in atoms else -1
        removes = (order < 0) & may
        rows = torch.arange(len(element), device=device)[:, None, None]
        light = removes & (element[rows, end] == hydrogen).any(2)
        known_of = (part.to(device) for part in bearable(atoms, charges))
        return Valences(element, bonds, end, order, becomes, removes, light, *known_of)

    def take(self, rows: Tensor, units: int) -> Valences:
        """The valences of some instances, which may repeat, and of which none has more than so many units."""
        atoms = {name: getattr(self, name)[rows] for name in ("element", "bonds")}
        names = ("end", "order", "becomes", "removes", "light")
        return replace(self, **atoms, **{name: getattr(self, name)[rows, :units] for name in names})

    def _after(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The elements and the bonds of all atoms [R, N] once the edits of sets [R, U] are made."""
        owner, unit = sets.nonzero(as_tuple=True)
        of = rows[owner]
        element, bonds = self.element[rows], self.bonds[rows]
        new = self.becomes[of, unit]
        changed = new >= 0
        element[owner[changed], self.end[of, unit, 0][changed]] = new[changed]
        order = self.order[of, unit]
        for side in (0, 1):
            bonds.index_put_((owner, self.end[of, unit, side]), order, accumulate=True)
        return element, bonds

    def possible(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Whether no atom has more bonds than RDKit ever accepts, as far as that is known [R]."""
        element, bonds = self._after(rows, sets)
        return (bonds.floor() <= self.most[element]).all(1) | (self.metal[element] & (bonds > 0)).any(1)

    def _excess(self, rows: Tensor, element: Tensor, bonds: Tensor) -> Tensor:
        """How many bonds each atom has too many [R, N]; none where it has no more than as the graph is."""
        as_it_was = (element == self.element[rows]) & (bonds <= self.bonds[rows])
        return (bonds.floor() - self.bears[element]).clamp(min=0).masked_fill(as_it_was, 0)

    def fitting(self, rows: Tensor, sets: Tensor, mended: int = MAX_MENDED_BONDS) -> Tensor:
        """Which units [R, U] overload no atom when they are added, or can be `mended` by removing so many bonds."""
        element, bonds = self._after(rows, sets)
        new, free, fits = self.becomes[rows], self._free(rows, sets), torch.ones_like(sets)
        for side in (0, 1):
            atom = self.end[rows][..., side]
            kind = torch.where(new >= 0, new, element.gather(1, atom))
            over = bonds.gather(1, atom) + self.order[rows] - self.bears[kind]
            fits &= over.floor() <= free.gather(1, atom).clamp(max=mended)
        return sets | (self.order[rows] < 0) | fits  # a removal overloads nothing

    def _free(self, rows: Tensor, sets: Tensor) -> Tensor:
        """The bonds of each atom that can still be removed [R, N]."""
        left = self.removes[rows] & ~sets
        owner, unit = left.nonzero(as_tuple=True)
        free = torch.zeros_like(self.bonds[rows])
        for side in (0, 1):
            free.index_put_((owner, self.end[rows[owner], unit, side]), -self.order[rows[owner], unit], accumulate=True)
        return free

    def mended(self, rows: Tensor, sets: Tensor) -> Tensor:
        """Sets with the removal of bonds at atoms that have too many: of those between two such, then to hydrogen."""
        # Every pass takes one bond from the worst atom of each set, or gives the set up where that has none left: so it
        # ends after as many passes as there are bonds too many, and all sets go through it together.
        sets = sets.clone()
        todo = torch.arange(len(rows), device=rows.device)
        while len(todo):
            instance = rows[todo]
            excess = self._excess(instance, *self._after(instance, sets[todo]))
            heavy = excess.any(1)
            todo, instance, excess = todo[heavy], instance[heavy], excess[heavy]
            if not len(todo):
                break
            atom = excess.argmax(1)
            end = self.end[instance]
            at = (end == atom[:, None, None]).any(2) & self.removes[instance] & ~sets[todo]
            both = (excess.gather(1, end.flatten(1)).view_as(end) > 0).all(2)
            # A bond between two overloaded atoms before one to hydrogen, and a single bond before a double one.
            value = 4.0 * both + 2.0 * self.light[instance] + self.order[instance] / 8
            unit = value.masked_fill(~at, float("-inf")).argmax(1)
            some = at.any(1)
            todo, unit = todo[some], unit[some]
            sets[todo, unit] = True
        return sets


def _counted(instance: Instance, table: InstanceUnits, elements: int) -> tuple[Tensor, ...]:
    """Elements, bonds, and each unit's atoms, order and new element, of one instance."""
    kind, order = instance.x[:, :elements].argmax(1), instance.extras["bond"][1].float()
    there = torch.ones_like(order, dtype=torch.bool) if instance.role is None else instance.role != Role.CANDIDATE
    proper = instance.edge_index[0] != instance.edge_index[1]
    bonds = torch.zeros(len(kind)).index_add_(0, instance.edge_index[0, there & proper], order[there & proper])
    count = table.count
    end, change, becomes = torch.zeros(count, 2, dtype=torch.long), torch.zeros(count), torch.full((count,), -1)
    first, _ = table.edges
    columns = (first >= 0).nonzero().flatten()
    end[first[columns]] = instance.edge_index[:, columns].t()
    change[first[columns]] = torch.where(there[columns], -order[columns], order[columns])
    if table.changes is not None:
        changes = table.of_kind("changes")
        node = torch.searchsorted(instance.node_ids, table.ids[changes, 0])
        column = table.ids[changes, 1]
        end[changes] = node[:, None]
        becomes[changes] = torch.where(column < elements, column, kind[node])
    return kind, bonds, end, change, becomes
