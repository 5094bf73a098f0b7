"""Molecules as chemists draw them, where rdkit is installed; without it, they are drawn as any graph is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cf2.report.scene import EXPLANATION, TRUTH, Scene
from cf2.units.edits import CHANGE

# The colours of elements, from the same palette as everything else; carbon takes the colour of the text.
ELEMENTS = {7: (0.0, 0.45, 0.70), 8: (0.84, 0.37, 0.0), 16: (0.90, 0.62, 0.0), 15: (0.80, 0.47, 0.65)}
HALOGENS = (9, 17, 35, 53)


def coordinates(labels: Sequence[str], edges: np.ndarray, bonds: np.ndarray) -> np.ndarray | None:
    """Places [atoms, 2] for the atoms, or None where rdkit is missing or cannot read the labels."""
    molecule = _molecule(labels, edges, bonds)
    return None if molecule is None else _points(molecule)


def drawing(scene: Scene, width: int = 420, height: int = 320) -> tuple[str, np.ndarray] | None:
    """The scene as SVG in chemists' style, explanation highlighted, and where each atom is [atoms, 2].

    None where it is no readable molecule. What a counterfactual takes away is not highlighted.
    """
    made = _prepare(scene)
    if made is None:
        return None
    from rdkit.Chem.Draw import rdMolDraw2D

    drawer = rdMolDraw2D.MolDraw2DSVG(width, height)
    where = _draw(drawer, made, scene, own_lines=True)
    behind = _lines("cf2-true", scene.edges[scene.true], where)
    behind += "" if scene.edited else _lines("cf2-bond", scene.edges[scene.chosen], where)
    return behind + _compact(_inside(drawer)), _places(scene, where)


_ELEMENT = re.compile(r"<(path|ellipse) ([^>]*?)/>")
_HIDDEN = re.compile(r"fill:#[0-9A-Fa-f]{6}00;")
_USUAL = re.compile(r"stroke-linecap:butt;|stroke-linejoin:miter;|;?stroke-opacity:1|fill-rule:evenodd;|class='[^']*'")


def _compact(text: str) -> str:
    """The same drawing in a third of the text: lines of one look are one path, and what cannot be seen is left out."""
    marks, paths = [], dict[str, list[str]]()
    for kind, inside in _ELEMENT.findall(text):
        look = " ".join(_USUAL.sub("", inside).split())
        line = re.search(r"\bd='([^']*)'", look)
        if kind == "ellipse" or line is None:
            marks += [] if _HIDDEN.search(inside) else [f"<{kind} {look}/>"]
        else:
            paths.setdefault(look.replace(line[0], "").strip(), []).append(
                re.sub(r" ?([A-Z]) ?", r"\1", line[1]).strip()
            )
    return "".join([*marks, *(f"<path {look} d='{''.join(lines)}'/>" for look, lines in paths.items())])


def _seen(text: str) -> str:
    """The same drawing without what cannot be seen."""
    return _ELEMENT.sub(lambda found: "" if _HIDDEN.search(found[0]) else found[0], text)


class PlainDrawing(NamedTuple):
    """A molecule without marks: the inside of an SVG, its width and height, and where each atom is [atoms, 2]."""

    text: str
    size: tuple[int, int]
    places: np.ndarray


def plain_drawing(scene: Scene, bond: float = 44.0) -> PlainDrawing | None:
    """The scene in chemists' style with nothing marked, large enough for bonds of `bond` pixels.

    Atoms in the explanation have the colour of the text, to be read on what marks them.
    An atom that is folded into its neighbour is nowhere. None where it is no readable molecule.
    """
    made = _prepare(scene)
    if made is None:
        return None
    from rdkit.Chem.Draw import rdMolDraw2D

    span = np.ptp(scene.points, axis=0) if len(scene.points) else np.zeros(2)
    width, height = (int(part) for part in span * bond * 1.1 + 2 * bond)
    drawer = rdMolDraw2D.MolDraw2DSVG(width, height)
    none = np.zeros(len(scene.nodes), dtype=bool)
    plain = replace(scene, changed={}, marked=none)
    where = _draw(drawer, made, plain, own_lines=True, bond=bond)
    return PlainDrawing(_seen(_inside(drawer)), (width, height), _places(scene, where))


def _inside(drawer: Any) -> str:
    """What a drawer has drawn, without the element around it."""
    text = drawer.GetDrawingText()
    text = text[text.index("<!-- END OF HEADER -->") :].replace("</svg>", "")
    # Black means "the colour of the text", so that the same drawing works on a dark page.
    return re.sub(r"#000000", "currentColor", text)


def image(scene: Scene, width: int = 840, height: int = 640) -> np.ndarray | None:
    """The scene as pixels [height, width, 4], for a matplotlib figure."""
    made = placed_image(scene, width, height)
    return None if made is None else made[0]


def placed_image(scene: Scene, width: int = 840, height: int = 640) -> tuple[np.ndarray, np.ndarray] | None:
    """The same, with where each atom is [atoms, 2]."""
    made = _prepare(scene)
    if made is None:
        return None
    import io

    from matplotlib import image as pixels
    from rdkit.Chem.Draw import rdMolDraw2D

    drawer = rdMolDraw2D.MolDraw2DCairo(width, height)
    where = _draw(drawer, made, scene, own_lines=False)
    return np.asarray(pixels.imread(io.BytesIO(drawer.GetDrawingText()), format="png")), _places(scene, where)


def _places(scene: Scene, where: dict[int, tuple[float, float]]) -> np.ndarray:
    """Where each atom is [atoms, 2]; one that is folded into its neighbour is nowhere."""
    nowhere = (float("nan"), float("nan"))
    return np.array([where.get(atom, nowhere) for atom in range(len(scene.nodes))]).reshape(-1, 2)


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
        molecule.AddAtom(atom)
    orders = bonds if len(bonds) else np.ones(len(edges))
    for (a, b), order in zip(edges.tolist(), orders.tolist()):
        if molecule.GetBondBetweenAtoms(a, b) is None:
            molecule.AddBond(a, b, kinds.get(order, Chem.BondType.SINGLE))
    # Not sanitised: a data set's graph is drawn as it is, also where its valences are not those of chemistry.
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    return molecule


def _points(molecule: Any) -> np.ndarray:
    from rdkit.Chem import rdDepictor

    rdDepictor.SetPreferCoordGen(False)
    rdDepictor.Compute2DCoords(molecule, canonOrient=True)
    rdDepictor.StraightenDepiction(molecule)
    points = molecule.GetConformer().GetPositions()[:, :2]
    return np.asarray(points - points.mean(0)) / 1.5


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
        molecule.GetAtomWithIdx(atom).SetIntProp("scene", atom)
    molecule.AddConformer(place, assignId=True)
    special = {*scene.special, *scene.edges[scene.true].reshape(-1).tolist()}
    gone = [a for a in range(len(scene.nodes)) if a not in special and _folds(molecule.GetAtomWithIdx(a))]
    for atom in gone:
        (heavy,) = molecule.GetAtomWithIdx(atom).GetNeighbors()
        heavy.SetNumExplicitHs(heavy.GetNumExplicitHs() + 1)
    for atom in reversed(gone):
        molecule.RemoveAtom(atom)
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    return molecule


def _folds(atom: Any) -> bool:
    around = atom.GetNeighbors()
    return atom.GetSymbol() == "H" and len(around) == 1 and around[0].GetSymbol() != "H"


def _draw(
    drawer: Any, molecule: Any, scene: Scene, own_lines: bool, bond: float | None = None
) -> dict[int, tuple[float, float]]:
    """Draw with the explanation highlighted; returns where each of the scene's atoms landed."""
    here = {atom.GetIntProp("scene"): atom.GetIdx() for atom in molecule.GetAtoms()}
    options = drawer.drawOptions()
    options.clearBackground = False
    options.useDefaultAtomPalette()
    palette = dict(ELEMENTS) | dict.fromkeys(HALOGENS, (0.0, 0.55, 0.40)) | {6: (0, 0, 0), 1: (0.45, 0.45, 0.45)}
    options.updateAtomPalette({**palette, 0: (0, 0, 0)})
    options.bondLineWidth = 1.6
    options.highlightBondWidthMultiplier = 14
    options.prepareMolsBeforeDrawing = False
    options.fixedBondLength = bond or (36.0 if drawer.Width() < 600 else 72.0)
    options.padding = 0.03
    # Where we draw the lines ourselves, an invisible highlight still keeps atoms in the text's colour.
    mine = _rgb(EXPLANATION, 0.0 if own_lines else 0.55)
    other = _rgb(TRUTH, 0.35)
    bonds = {}
    for (a, b), chosen, true in zip(scene.edges.tolist(), scene.chosen & (not scene.edited), scene.true):
        if (chosen or true) and not own_lines:
            bonds[molecule.GetBondBetweenAtoms(here[a], here[b]).GetIdx()] = mine if chosen else other
    atoms = {here[a]: mine for a in np.flatnonzero(scene.inside).tolist() if not scene.edited or own_lines}
    atoms |= {here[a]: _rgb(CHANGE.colour, 0.75) for a in scene.changed}
    atoms |= {here[a]: (0.94, 0.89, 0.26, 0.8) for a in np.flatnonzero(scene.marked).tolist()}
    drawer.DrawMolecule(
        molecule,
        highlightAtoms=list(atoms),
        highlightAtomColors=atoms,
        highlightBonds=list(bonds),
        highlightBondColors=bonds,
        highlightAtomRadii=dict.fromkeys(atoms, 0.22),
    )
    drawer.FinishDrawing()
    points = {atom: drawer.GetDrawCoords(index) for atom, index in here.items()}
    return {atom: (float(p.x), float(p.y)) for atom, p in points.items()}


def _lines(kind: str, edges: np.ndarray, where: dict[int, tuple[float, float]]) -> str:
    """Broad lines along some bonds, for behind the drawing."""
    ends = [(*where[a], *where[b]) for a, b in edges.tolist()]
    path = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in ends)
    return f'<path class="cf2-molecule {kind}" d="{path}"/>' if path else ""


def _rgb(colour: str, alpha: float) -> tuple[float, float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue, alpha
