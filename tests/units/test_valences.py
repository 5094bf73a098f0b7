"""What atoms can bear: the cheap table against RDKit, on random molecules with random edits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

import cf2
from cf2.graphs.graph import Instance
from cf2.graphs.targets import GraphTargets
from cf2.options import Spec
from cf2.units.edits import Editing, edited, kinds_for
from cf2.units.kinds import InstanceUnits, units_of
from cf2.units.molecules import Valences, edited_molecule, molecule_check, smiles_of
from toys import GraphNet

pytest.importorskip("rdkit")
ATOMS = ("C", "N", "O", "H", "S", "P", "Cl", "Na")
SPEC = Spec(question="counterfactual", edits=("remove", "add", "change"), valid="molecule", atoms=ATOMS)


def molecule(seed: int, nodes: int = 7) -> Data:
    """A random graph of atoms and bonds, which is a molecule or not."""
    stream = torch.Generator().manual_seed(seed)
    elements = torch.randint(0, len(ATOMS), (nodes,), generator=stream)
    elements[torch.rand(nodes, generator=stream) < 0.5] = 3
    pairs = torch.combinations(torch.arange(nodes))
    pairs = pairs[torch.rand(len(pairs), generator=stream) < 0.3].t()
    bond = torch.randint(1, 4, (pairs.size(1),), generator=stream).clamp(max=2)
    return Data(
        x=torch.eye(len(ATOMS))[elements], edge_index=torch.cat([pairs, pairs.flip(0)], 1), bond=torch.cat([bond, bond])
    )


def tables(data: Data) -> tuple[Instance, InstanceUnits, Valences]:
    targets = GraphTargets([data])
    editing = Editing.of(SPEC, targets)
    assert editing is not None
    instance = editing.prepared(targets.instance(0), lambda nodes: targets.instance(0))
    table = units_of(instance, kinds_for(SPEC))
    made = Valences.of(ATOMS, [instance], [table], torch.ones(1, table.count, dtype=torch.bool))
    assert made is not None
    return instance, table, made


def drawn(table: InstanceUnits, stream: torch.Generator, count: int) -> Tensor:
    """Random sets of edits [count, U] without two changes of one atom."""
    sets = torch.zeros(count, table.count, dtype=torch.bool)
    for row in sets:
        row[torch.randperm(table.count, generator=stream)[: int(torch.randint(0, 6, (1,), generator=stream))]] = True
        if table.changes is not None:
            changed = (row & (table.kind == table.names.index("changes"))).nonzero().flatten()
            node = table.ids[changed, 0]
            for place, unit in enumerate(changed.tolist()):
                row[unit] = bool((node[:place] != node[place]).all())
    return sets


@settings(max_examples=60, deadline=None)
@example(163)  # a carbon with five bonds, one of them to sodium
@given(st.integers(0, 10**6))
def test_what_is_ruled_out_rdkit_refuses_too(seed: int) -> None:
    instance, table, valences = tables(molecule(seed))
    check = molecule_check(ATOMS)
    sets = drawn(table, torch.Generator().manual_seed(seed), 30)
    possible = valences.possible(torch.zeros(len(sets), dtype=torch.long), sets)
    for chosen, good in zip(sets, possible.tolist()):
        assert good or not check(edited(instance, table, chosen))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_a_valid_molecule_stays_one_when_what_was_overloaded_is_mended(seed: int) -> None:
    instance, table, valences = tables(molecule(seed))
    check = molecule_check(ATOMS)
    nothing = torch.zeros(1, table.count, dtype=torch.bool)
    if not check(edited(instance, table, nothing[0])):
        return
    if bool((valences.bonds.floor() > valences.bears[valences.element]).any()):
        return  # too many bonds from the start: RDKit reads one to a metal as dative, as long as it is a metal
    rows = torch.zeros(1, dtype=torch.long)
    for unit in valences.fitting(rows, nothing)[0].nonzero().flatten().tolist():
        one = nothing.clone()
        one[0, unit] = True
        mended = valences.mended(rows, one)
        assert bool((mended | ~one).all()), "what was chosen stays"
        assert bool((table.kind[(mended & ~one)[0]] == table.names.index("edges")).all()), "the rest are removals"
        assert check(edited(instance, table, mended[0]))
    alone = valences.fitting(rows, nothing, 0)[0]
    assert not bool((alone & ~valences.fitting(rows, nothing)[0]).any())
    for unit in alone.nonzero().flatten().tolist():
        one = nothing.clone()
        one[0, unit] = True
        assert torch.equal(valences.mended(rows, one), one)
        assert check(edited(instance, table, one[0]))


def test_the_valences_of_some_instances_are_those_of_their_rows() -> None:
    _, table, valences = tables(molecule(3))
    sets = drawn(table, torch.Generator().manual_seed(0), 20)
    rows = torch.zeros(len(sets), dtype=torch.long)
    taken = valences.take(rows, table.count)
    every = torch.arange(len(sets))
    for name in ("possible", "fitting", "mended"):
        assert torch.equal(getattr(taken, name)(every, sets), getattr(valences, name)(rows, sets))


def test_steering_finds_what_asking_last_does() -> None:
    """On chains with hydrogens: no less is found than where RDKit is only asked last."""
    found, asked_last = 0, 0
    for seed in range(8):
        data, model = chain(seed), GraphNet("gin", features=len(ATOMS), seed=seed)
        (e,) = cf2.explain(model, [data], **options())
        (last,) = cf2.explain(model, [data], **options() | {"valid": molecule_check(ATOMS)})
        asked_last += last.status == "found"
        found += e.status == "found"
        assert e.status != "found" or molecule_check(ATOMS)(e.apply(data))
    assert found >= max(asked_last, 2)


def chain(seed: int) -> Data:
    """Five carbons in a row, with all their hydrogens and one random other atom."""
    ends = [(place, place + 1) for place in range(4)]
    ends += [(place, 5 + 2 * place + side) for place in range(5) for side in (0, 1)]
    kinds = [0] * 5 + [3] * 10
    kinds[5 + seed % 10] = 2 if seed % 2 else 6
    pairs = torch.tensor(ends).t()
    x = torch.eye(len(ATOMS))[torch.tensor(kinds)]
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], 1), bond=torch.ones(2 * pairs.size(1)).long())


def options() -> dict[str, Any]:
    return {"question": "counterfactual", "edits": SPEC.edits, "valid": "molecule", "atoms": ATOMS}


@pytest.mark.parametrize(
    ("text", "atoms", "bonds", "left"),
    [
        ("CCO", [2], [], "CC"),
        ("CCO", [], [(1, 0)], "C.CO"),
        ("C[C@H](N)O", [2], [], "CCO"),
        ("c1cc[nH]c1", [], [(3, 4)], "C=CC=CN"),
        ("c1ccccc1O", [6], [], "c1ccccc1"),
        ("C", [0], [], None),
        ("no molecule", [0], [], None),
    ],
)
def test_what_is_removed_from_a_molecule_becomes_hydrogen(text: str, atoms: Any, bonds: Any, left: Any) -> None:
    edits = [("remove", place) for place in [*bonds, *((atom,) for atom in atoms)]]
    assert smiles_of(edited_molecule(text, edits)) == left
