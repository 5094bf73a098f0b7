"""Whether an edited molecule is one: RDKit can sanitise it, so its valences hold and its rings can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import CF2Error, extra, require
from cf2.graphs.graph import Instance, Role
from cf2.units.edits import CHANGE, EDGE_KINDS
from cf2.units.kinds import InstanceUnits

# -- molecules -------------------------------------------------------------------------------------------


CHARGED = {("N", 4): 1, ("O", 3): 1, ("S", 3): 1, ("P", 4): 1, ("B", 4): -1}  # ions that data sets write without charge


ORDERS = (1.0, 1.5, 2.0, 3.0)


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


def check_orders(instance: Instance) -> None:
    """Refuse bonds in another encoding, such as the numbers of `from_smiles`: they would be read as other bonds."""
    require("bond" in instance.extras, "Expected `bond`, the order of every bond, for valid='molecule'", got="none")
    other = [order for order in torch.unique(instance.extras["bond"][1]).tolist() if order not in ORDERS]
    expected = "Expected `bond` to hold orders of bonds: 1, 2, 3, or 1.5 for aromatic ones"
    require(not other, expected, got=", ".join(f"{order:g}" for order in other[:3]))


def _molecule(Chem: Any, graph: Data, atoms: tuple[str, ...]) -> Any:
    """The molecule of a graph with one-hot elements; what it lacks in hydrogen, RDKit puts there."""
    require(
        graph.x.size(1) >= len(atoms) and bool((graph.x[:, : len(atoms)].sum(1) == 1).all()),
        f"Expected features that say of every node which of {len(atoms)} elements it is",
        got=f"shape {tuple(graph.x.shape)} with other values",
    )
    kinds = {1.0: Chem.BondType.SINGLE, 2.0: Chem.BondType.DOUBLE, 3.0: Chem.BondType.TRIPLE}
    kinds[1.5] = Chem.BondType.AROMATIC
    made = Chem.RWMol()
    elements = [atoms[place] for place in graph.x[:, : len(atoms)].nonzero()[:, 1].tolist()]
    valence = torch.zeros(len(elements), dtype=torch.double)
    for element in elements:
        made.AddAtom(Chem.Atom(element))
    for (a, b), order in zip(graph.edge_index.t().tolist(), graph.bond.tolist()):
        if a != b and made.GetBondBetweenAtoms(a, b) is None:
            made.AddBond(a, b, kinds[float(order)])
            valence[[a, b]] += float(order)
    for place, (element, total) in enumerate(zip(elements, valence.tolist())):
        charge = CHARGED.get((element, int(total)), 0)
        if charge:
            made.GetAtomWithIdx(place).SetFormalCharge(charge)
    return made


def smiles_without(text: str, atoms: Iterable[int], bonds: Iterable[tuple[int, int]]) -> str | None:
    """The SMILES of a molecule without some atoms and bonds, with hydrogens in their place; None if that is none."""
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        return None
    gone = set(atoms)
    with rdBase.BlockLogs():
        try:
            made = Chem.RWMol(Chem.MolFromSmiles(text))
            Chem.Kekulize(made, clearAromaticFlags=True)  # an opened ring is not aromatic any more
            for pair in {(min(pair), max(pair)) for pair in bonds if not gone & set(pair)}:
                made.RemoveBond(*pair)
                for end in pair:
                    made.GetAtomWithIdx(end).SetNoImplicit(False)
            for atom in sorted(gone, reverse=True):
                for neighbour in made.GetAtomWithIdx(atom).GetNeighbors():
                    neighbour.SetNoImplicit(False)
                made.RemoveAtom(atom)
            Chem.SanitizeMol(made)
        except (ValueError, RuntimeError, OverflowError, TypeError):  # TypeError: the text is no SMILES
            return None
        return str(Chem.MolToSmiles(made)) if made.GetNumAtoms() else None


def edited_smiles(text: str, nodes: int, edits: Sequence[tuple[Any, ...]], context: Mapping[str, Any]) -> str | None:
    """The SMILES of a molecule after edits (`Explanation.edits`); None where RDKit does not take it, or is not there.

    An added bond has the order in `added_attributes`, else 1. A change of element needs `atoms` in the context.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        return None
    atoms = context.get("atoms") or ()
    order = ((context.get("spec") or {}).get("added_attributes") or {}).get("bond", 1)
    kinds = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
    with rdBase.BlockLogs():
        plain = Chem.MolFromSmiles(text)
        if plain is None:
            return None
        whole = plain if plain.GetNumAtoms() == nodes else Chem.AddHs(plain)
        if whole.GetNumAtoms() != nodes:
            return None
        made, gone = Chem.RWMol(whole), list[int]()
        Chem.Kekulize(made, clearAromaticFlags=True)
        for edit, place, *values in edits:
            if edit == "remove" and len(place) == 1:
                gone.append(place[0])
            elif edit == "remove":
                made.RemoveBond(*place)
            elif edit == "add":
                made.AddBond(place[0], place[1], kinds.get(order, Chem.BondType.SINGLE))
            elif values[1] and place[1] < len(atoms):
                made.GetAtomWithIdx(place[0]).SetAtomicNum(Chem.GetPeriodicTable().GetAtomicNumber(atoms[place[1]]))
            elif place[1] >= len(atoms):
                return None  # a change of something else than the element
        for atom in sorted(gone, reverse=True):
            made.RemoveAtom(atom)
        for atom in made.GetAtoms():
            atom.SetNoImplicit(False)
            atom.SetNumExplicitHs(0)
        if Chem.SanitizeMol(made, catchErrors=True) != Chem.SanitizeFlags.SANITIZE_NONE:
            return None
        return str(Chem.MolToSmiles(made))


def smarts_of(text: str, atoms: Sequence[int], bonds: Sequence[tuple[int, int]] | None) -> str | None:
    """The SMARTS of some atoms of a SMILES and the bonds that are named, or all between them; None without RDKit."""
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        return None
    with rdBase.BlockLogs():
        plain = Chem.MolFromSmiles(text)
    if plain is None or not len(atoms):
        return None
    molecule = plain if max(atoms) < plain.GetNumAtoms() else Chem.AddHs(plain)
    if max(atoms) >= molecule.GetNumAtoms():
        return None  # a file may hold the SMILES of another graph
    between = [molecule.GetBondBetweenAtoms(*pair) for pair in bonds or ()]
    listed = None if bonds is None else sorted({bond.GetIdx() for bond in between if bond is not None})
    written: str = Chem.MolFragmentToSmarts(molecule, list(atoms), listed)
    return written


# -- valences --------------------------------------------------------------------------------------------


COUNTED = {*EDGE_KINDS, CHANGE.unit_kind}  # kinds of unit of which it is known what they do to the bonds of an atom
MENDED = 2  # bonds that an atom may lose to make room for one edit
REWRITTEN = {"N": 5, "P": 7, "Cl": 7, "Br": 7, "I": 7}  # RDKit reads some of these as charges, as in a nitro group


def bearable(atoms: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """What RDKit says of each element [elements].

    How many bonds an atom of it bears, beyond how many it is refused where no metal is around, and whether it is a
    metal: a carbon with five bonds, one of them to such an atom, is accepted, because that one is read as dative.
    """
    from rdkit import Chem, rdBase

    table = Chem.GetPeriodicTable()
    bears, most = [], []
    for atom in atoms:
        known = list(table.GetValenceList(atom))
        top = 99 if -1 in known else max(known)
        ion = top + 1 if CHARGED.get((atom, top + 1)) else top
        bears.append(ion)
        most.append(max(ion, REWRITTEN.get(atom, 0)))
    with rdBase.BlockLogs():
        metal = [_accepted(Chem.MolFromSmiles(f"CC(#C)[{atom}]", sanitize=False)) for atom in atoms]
    return torch.tensor(bears, dtype=torch.float), torch.tensor(most, dtype=torch.float), torch.tensor(metal)


def _accepted(molecule: Any) -> bool:
    from rdkit import Chem

    return bool(Chem.SanitizeMol(molecule, catchErrors=True) == Chem.SanitizeFlags.SANITIZE_NONE)


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
        atoms: Sequence[str], instances: Sequence[Instance], tables: Sequence[InstanceUnits], may: Tensor
    ) -> Valences | None:
        """The valences of instances with units [B, U] that `may` be chosen; None where bonds are not known."""
        known = all("bond" in instance.extras for instance in instances)
        if not known or not COUNTED.issuperset(tables[0].names) or any(i.directed for i in instances):
            return None
        device = may.device
        parts = [_counted(i, t, len(atoms)) for i, t in zip(instances, tables)]
        element, bonds, end, order, becomes = (_padded([part[n] for part in parts]).to(device) for n in range(5))
        hydrogen = atoms.index("H") if "H" in atoms else -1
        removes = (order < 0) & may
        rows = torch.arange(len(element), device=device)[:, None, None]
        light = removes & (element[rows, end] == hydrogen).any(2)
        known_of = (part.to(device) for part in bearable(atoms))
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

    def fitting(self, rows: Tensor, sets: Tensor, mended: int = MENDED) -> Tensor:
        """Which units [R, U] overload no atom when they are added, or can be `mended` by removing so many bonds."""
        element, bonds = self._after(rows, sets)
        end, new = self.end[rows], self.becomes[rows]
        first = end[..., 0]
        kind = torch.where(new >= 0, new, element.gather(1, first))
        free = self._free(rows, sets)
        good = sets | (self.order[rows] < 0)
        fits = torch.ones_like(good)
        for side, own in ((0, kind), (1, torch.where(new >= 0, new, element.gather(1, end[..., 1])))):
            atom = end[..., side]
            over = bonds.gather(1, atom) + self.order[rows] - self.bears[own]
            fits &= over.floor() <= free.gather(1, atom).clamp(max=mended)
        return good | fits

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
        sets = sets.clone()
        todo = torch.arange(len(rows), device=rows.device)
        while len(todo):
            mine = rows[todo]
            excess = self._excess(mine, *self._after(mine, sets[todo]))
            heavy = excess.any(1)
            todo, mine, excess = todo[heavy], mine[heavy], excess[heavy]
            if not len(todo):
                break
            atom = excess.argmax(1)
            end = self.end[mine]
            at = (end == atom[:, None, None]).any(2) & self.removes[mine] & ~sets[todo]
            both = (excess.gather(1, end.flatten(1)).view_as(end) > 0).all(2)
            value = 4.0 * both + 2.0 * self.light[mine] + self.order[mine] / 8  # rather a single bond than a double one
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
        mine = torch.unique(table.changes.unit)
        node = torch.searchsorted(instance.node_ids, table.ids[mine, 0])
        column = table.ids[mine, 1]
        end[mine] = node[:, None]
        becomes[mine] = torch.where(column < elements, column, kind[node])
    return kind, bonds, end, change, becomes


def _padded(parts: Sequence[Tensor]) -> Tensor:
    """Tensors of different lengths as one [B, longest, …], with zeros behind."""
    made: Tensor = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
    return made
