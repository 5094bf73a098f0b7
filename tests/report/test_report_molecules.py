"""Molecules as chemists draw them; without rdkit, as any graph."""

from typing import Any

import pytest

from cf2.report import molecules
from cf2.report import pictures as svg
from cf2.report.scene import scene
from report.explained_toys import ATOMS, NITROBENZENE, explained, nitro_bonds


def molecule_context() -> dict[str, Any]:
    return {"atoms": list(ATOMS), "graphs": {"0": {"labels": list(NITROBENZENE)}}}


class TestMolecules:
    @pytest.fixture(autouse=True)
    def needs_rdkit(self) -> None:
        pytest.importorskip("rdkit", reason="rdkit is not installed")

    def test_hydrogens_outside_the_explanation_are_folded_into_their_atoms(self) -> None:
        e = explained(nitro_bonds, "cf2")[0]
        made = molecules._prepare(scene(e, molecule_context()))
        assert [atom.GetSymbol() for atom in made.GetAtoms()].count("H") == 0
        assert sum(atom.GetNumExplicitHs() for atom in made.GetAtoms()) == 5

    def test_a_hydrogen_in_the_explanation_is_drawn(self) -> None:
        e = explained(lambda key, pairs: (pairs == 9).any(1), "cf2")[0]
        made = molecules._prepare(scene(e, molecule_context()))
        assert [atom.GetSymbol() for atom in made.GetAtoms()].count("H") == 1

    def test_the_drawing_follows_the_colour_of_the_text_and_marks_the_explanation(self) -> None:
        e = explained(nitro_bonds, "cf2")[0]
        text = str(svg.picture(scene(e, molecule_context()), "a molecule", molecule=True))
        assert "currentColor" in text
        assert "#000000" not in text
        assert text.count("cf2-bond") == 1

    def test_bond_orders_are_used_where_known(self) -> None:
        context = molecule_context()
        context["graphs"]["0"]["bonds"] = [[0, 1, 2], [6, 7, 2]]
        e = explained(nitro_bonds, "cf2")[0]
        made = molecules._prepare(scene(e, context))
        kinds = [bond.GetBondTypeAsDouble() for bond in made.GetBonds()]
        assert sorted(kinds)[-2:] == [2.0, 2.0]
        assert kinds.count(1.0) == len(kinds) - 2

    def test_labels_that_are_no_elements_are_drawn_as_a_graph(self) -> None:
        context = molecule_context()
        context["graphs"]["0"]["labels"][0] = "<b>"
        e = explained(nitro_bonds, "cf2")[0]
        text = str(svg.picture(scene(e, context), "no molecule", molecule=True))
        assert "cf2-chosen" in text
        assert "&lt;b&gt;" in text
        assert "<b>" not in text


def test_without_rdkit_a_molecule_is_an_ordinary_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rdkit", None)
    e = explained(nitro_bonds, "cf2")[0]
    text = str(svg.picture(scene(e, molecule_context()), "a graph", molecule=True))
    assert "cf2-chosen" in text
    assert text.count("<text") == 14
