"""Molecules as chemists draw them, where rdkit is installed; without it, they are drawn as any graph is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cf2.report.scene import LOOKS, MARKED, MOLECULE, Scene
from cf2.units.edits import CHANGE

# The colours of elements, from the same palette as everything else; carbon takes the colour of the text.
ELEMENTS = {7: (0.0, 0.45, 0.70), 8: (0.84, 0.37, 0.0), 16: (0.90, 0.62, 0.0), 15: (0.80, 0.47, 0.65)}
HALOGENS = (9, 17, 35, 53)


def coordinates(labels: Sequence[str], edges: np.ndarray, bonds: np.ndarray) -> np.ndarray | None:
    """Points [atoms, 2] for the atoms, or None where rdkit is missing or cannot read the labels."""
    molecule = _molecule(labels, edges, bonds)
    if molecule is None:
        return None
    from rdkit.Chem import rdDepictor
    from rdkit.Geometry import Point2D

    # Hydrogens would take the corners of a CH2, and the chain would be drawn straight: heavy atoms are placed first.
    rdDepictor.SetPreferCoordGen(False)
    heavy = _without_hydrogens(molecule)
    rdDepictor.Compute2DCoords(heavy, canonOrient=True)
    rdDepictor.StraightenDepiction(heavy)
    at = heavy.GetConformer().GetPositions()[:, :2].tolist()
    placed = {atom.GetIntProp("scene"): Point2D(*at[atom.GetIdx()]) for atom in heavy.GetAtoms()}
    rdDepictor.Compute2DCoords(molecule, canonOrient=False, coordMap=placed)
    points = molecule.GetConformer().GetPositions()[:, :2]
    return np.asarray(points - points.mean(0)) / 1.5


def drawing(scene: Scene, width: int, height: int, bond: float = 36.0) -> tuple[str, np.ndarray] | None:
    """The inside of an SVG in chemists' style, changed and marked atoms ringed, and where each atom is [atoms, 2].

    `bond` is how long bonds are at most. An atom that is folded into its neighbour is nowhere (NaN). None where it is
    no readable molecule. Lines along bonds are left to the caller.
    """
    molecule = _prepare(scene)
    if molecule is None:
        return None
    from rdkit.Chem.Draw import rdMolDraw2D

    drawer = rdMolDraw2D.MolDraw2DSVG(width, height)
    at = _draw(drawer, molecule, scene, bond)
    text = drawer.GetDrawingText().partition("<!-- END OF HEADER -->")[2].replace("</svg>", "")
    # Black means "the colour of the text", so that the same drawing works on a dark page.
    return text.replace("#000000", "currentColor"), at


def image(scene: Scene) -> tuple[np.ndarray, np.ndarray] | None:
    """The same as pixels [height, width, 4] for a matplotlib figure."""
    molecule = _prepare(scene)
    if molecule is None:
        return None
    import io

    from matplotlib import image as pixels
    from rdkit.Chem.Draw import rdMolDraw2D

    drawer = rdMolDraw2D.MolDraw2DCairo(840, 640)
    at = _draw(drawer, molecule, scene, 72.0)
    return np.asarray(pixels.imread(io.BytesIO(drawer.GetDrawingText()), format="png")), at


def _molecule(
    labels: Sequence[str], edges: np.ndarray, bonds: np.ndarray, formal: Sequence[tuple[int, int]] = ()
) -> Any:
    try:
        from rdkit import Chem
    except ImportError:
        return None
    table = Chem.GetPeriodicTable()
    known = {table.GetElementSymbol(n) for n in range(1, 119)}
    if not labels or any(label not in known for label in labels):
        return None
    kinds = {2.0: Chem.BondType.DOUBLE, 3.0: Chem.BondType.TRIPLE, 1.5: Chem.BondType.AROMATIC}
    molecule = Chem.RWMol()
    for place, label in enumerate(labels):
        atom = Chem.Atom(label)
        atom.SetNoImplicit(True)
        charge, hydrogens = formal[place] if formal else (0, 0)
        atom.SetFormalCharge(charge)
        atom.SetNumExplicitHs(hydrogens)
        atom.SetIntProp("scene", place)
        molecule.AddAtom(atom)
    orders = bonds if len(bonds) else np.ones(len(edges))
    for (a, b), order in zip(edges.tolist(), orders.tolist()):
        if molecule.GetBondBetweenAtoms(a, b) is None:
            molecule.AddBond(a, b, kinds.get(order, Chem.BondType.SINGLE))
    # Not sanitised: a data set's graph is drawn as it is, also where its valences are not those of chemistry.
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    return molecule


def _prepare(scene: Scene) -> Any:
    """The molecule at the scene's places, hydrogens that nothing points at folded into their neighbours."""
    molecule = _molecule(scene.labels, scene.edges, scene.bonds, scene.formal)
    if molecule is None:
        return None
    from rdkit import Chem
    from rdkit.Geometry import Point3D

    place = Chem.Conformer(len(scene.nodes))
    for atom, (x, y) in enumerate(scene.points.tolist()):
        place.SetAtomPosition(atom, Point3D(x * 1.5, y * 1.5, 0.0))
    molecule.AddConformer(place, assignId=True)
    return _without_hydrogens(molecule, {*scene.special, *scene.edges[scene.true].reshape(-1).tolist()})


def _without_hydrogens(molecule: Any, special: Iterable[int] = ()) -> Any:
    """The molecule with hydrogens as part of their heavy neighbours, as chemists write them, but for special atoms."""
    from rdkit import Chem

    for atom in special:
        molecule.GetAtomWithIdx(atom).SetAtomMapNum(1)  # by which rdkit leaves an atom alone
    rules: Any = Chem.RemoveHsParameters()
    rules.removeMapped = rules.showWarnings = False
    rules.removeHydrides = rules.removeDefiningBondStereo = rules.removeWithWedgedBond = True
    folded = Chem.RemoveHs(molecule, rules, sanitize=False)
    for atom in folded.GetAtoms():
        atom.SetAtomMapNum(0)
    folded.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(folded)
    return folded


def _draw(drawer: Any, molecule: Any, scene: Scene, bond: float) -> np.ndarray:
    """Draw with changed and marked atoms highlighted; returns where each atom landed."""
    from matplotlib.colors import to_rgba

    here = {atom.GetIntProp("scene"): atom.GetIdx() for atom in molecule.GetAtoms()}
    options = drawer.drawOptions()
    options.clearBackground = False
    options.useDefaultAtomPalette()
    palette = dict(ELEMENTS) | dict.fromkeys(HALOGENS, (0.0, 0.55, 0.40)) | {6: (0, 0, 0), 1: (0.45, 0.45, 0.45)}
    options.updateAtomPalette({**palette, 0: (0, 0, 0)})
    options.bondLineWidth = 1.6
    options.prepareMolsBeforeDrawing = False
    options.fixedBondLength = bond
    options.padding = 0.03
    # The caller draws the lines behind; an invisible highlight keeps atoms in the text's colour. An atom that was
    # chosen by itself is at no such line.
    on_line = {*scene.edges[scene.chosen].reshape(-1).tolist(), *scene.added.reshape(-1).tolist()}
    opacity = LOOKS["bond"].opacity
    chosen = np.flatnonzero(scene.inside).tolist()
    atoms = {here[a]: to_rgba(MOLECULE, 0.0 if a in on_line else opacity) for a in chosen}
    atoms |= {here[a]: to_rgba(CHANGE.colour, 0.75) for a in scene.changed}
    atoms |= {here[a]: to_rgba(MARKED, 0.8) for a in np.flatnonzero(scene.marked).tolist()}
    drawer.DrawMolecule(
        molecule,
        highlightAtoms=list(atoms),
        highlightAtomColors=atoms,
        highlightBonds=[],
        highlightAtomRadii=dict.fromkeys(atoms, 0.22),
    )
    drawer.FinishDrawing()
    at = np.full((len(scene.nodes), 2), np.nan)
    for atom, index in here.items():
        point = drawer.GetDrawCoords(index)
        at[atom] = point.x, point.y
    return at
