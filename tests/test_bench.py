"""The benchmarks run, compare like with like, and rest on facts that need no clock."""

from __future__ import annotations

import doctest
import json
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cf2.cli.commands import app
from cf2.errors import CF2Error
from cf2.graphs.targets import NodeTargets
from cf2.models.predictor import Predictor
from cf2.models.receptive_field import ReceptiveField
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.units.kinds import unit_kinds, units_of

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import bench
from bench import calls, curves, page, rivals
from bench.graphs import big_request, block, copies, resized, shapes
from bench.timing import in_fresh_process


def test_an_atom_is_taken_out_of_crippens_formula() -> None:
    """Its neighbours get hydrogens: acetic acid without an oxygen or a carbon is a molecule again."""
    Crippen = pytest.importorskip("rdkit.Chem.Crippen")
    Chem = pytest.importorskip("rdkit.Chem")
    from contributions import lost_by_the_formula

    logp = {smiles: Crippen.MolLogP(Chem.MolFromSmiles(smiles)) for smiles in ("CC(=O)O", "CC=O", "CCO", "C.O.O")}
    whole = logp["CC(=O)O"]
    lost = lost_by_the_formula("CC(=O)O")
    assert lost[2:].tolist() == pytest.approx([whole - logp["CCO"], whole - logp["CC=O"]])
    assert lost[1] == pytest.approx(whole - logp["C.O.O"])
    charged = lost_by_the_formula("C[NH3+]")
    assert charged[0] == pytest.approx(
        Crippen.MolLogP(Chem.MolFromSmiles("C[NH3+]")) - Crippen.MolLogP(Chem.MolFromSmiles("[NH4+]"))
    )


def test_a_block_is_undirected_and_of_the_size_it_says() -> None:
    edges = block(nodes=500, degree=6)
    assert edges.shape == (2, 3000)
    pairs = set(map(tuple, edges.T.tolist()))
    assert pairs == {(v, u) for u, v in pairs}


def test_copies_keep_the_neighbourhoods_of_the_first_block() -> None:
    """What makes the comparison of graph sizes fair: the same instances, whatever the size of the graph."""
    found = {}
    for count in (1, 3):
        graph, nodes = copies(count, 400)
        instances = [NodeTargets(graph).instance(int(node), 2) for node in nodes[:5]]
        counts = [units_of(i, unit_kinds(["edges"])).count for i in instances]
        found[count] = [(len(i.node_ids), n, round(float(i.x.sum()), 3)) for i, n in zip(instances, counts)]
    assert found[1] == found[3]


def peak_of_a_cut(count: int) -> int:
    """The most bytes that numpy held at a time while receptive fields were cut from `count` blocks of nodes."""
    request, nodes = big_request(count)
    with Predictor(request.model, "node") as predictor:
        field = ReceptiveField(predictor, request.targets)
        field.instances(nodes[:1])
        tracemalloc.start()
        for node in nodes[::500]:
            field.instances([node])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def test_a_cut_costs_what_it_contains_and_not_what_the_graph_does() -> None:
    """A graph of 10⁶ directed edges against one of 10⁵: nothing is made that grows with the graph."""
    small, large = peak_of_a_cut(1), peak_of_a_cut(10)
    assert large < 1.5 * small + 10_000


@contextmanager
def counted(model: torch.nn.Module) -> Iterator[list[int]]:
    calls: list[int] = []
    hook = model.register_forward_pre_hook(lambda *_: calls.append(1))
    yield calls
    hook.remove()


def test_packed_instances_share_the_runs_of_the_model_that_a_loop_repeats() -> None:
    source = shapes()
    keys, ours, theirs = source.keys()[:4], [], []
    for count in (1, 4):
        request = source.request(keys, Spec("cf2-relaxed", settings={"epochs": 40}))
        with Session(request) as session, counted(source.model) as calls:
            session.explain(keys[:count])
        ours.append(len(calls))
        with counted(source.model) as calls:
            rivals.gnnexplainer(source, keys[:count], epochs=10)
        theirs.append(len(calls))
    assert ours[1] == ours[0] + 2 * 3  # the last word, which every answer is given by itself
    assert theirs[1] - theirs[0] >= 3 * 10


def test_another_width_explains_the_same_keys() -> None:
    source = shapes()
    wide = resized(source, 48)
    assert wide.keys() == source.keys()
    count = {name: sum(p.numel() for p in s.model.parameters()) for name, s in (("own", source), ("wide", wide))}
    assert count["wide"] > 2 * count["own"]
    with torch.no_grad():
        assert wide.model(wide.graphs[0].x, wide.graphs[0].edge_index).shape == (700, 4)


def test_many_instances_take_bounded_memory() -> None:
    """2,000 streamed instances may not need more memory than 200 by more than some noise."""
    _, few = in_fresh_process(curves._instances_point, 200)
    _, many = in_fresh_process(curves._instances_point, 2_000)
    assert many < few + 30


def test_what_is_measured_outside_of_explanations_runs_and_draws_from_nobodys_numbers() -> None:
    state = torch.random.get_rng_state()
    source = shapes()
    assert rivals.pgexplainer(source, source.keys()[:1], epochs=2) > 0
    assert torch.equal(torch.random.get_rng_state(), state)
    assert len(calls.first_call(blocks=1)) == 2
    assert calls._hub_seconds(300, 100, 40) > 0


def test_beside_the_speed_stands_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "EPOCHS", 5)
    source = shapes()
    figures = bench._compare(source, source.keys()[:2], trained=True)
    for name in ("verified", "quick"):
        assert 0 < figures[f"{name}_fns"] <= 1
        assert figures[f"{name}_size"] >= 1
        assert 0 <= figures[f"{name}_share_proved"] <= 1


def test_every_curve_gives_as_many_figures_as_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "in_fresh_process", lambda point, count: (point(count), 0.0))
    small = [curves.graph_size((0,)), curves.instances((4,)), curves.hidden_size((4,)), curves.units((4,))]
    for curve in small:
        (row,) = curve.rows
        assert len(row) == len(curve.columns)
    assert set(curves.CURVES) == {*(curve.name for curve in small), "workers"}


def test_a_page_has_every_figure_and_plot(tmp_path: Path) -> None:
    curve = curves.Curve("toy", "A toy", ("size", "ms"), ((1, 0.5), (10, 5.25)), "Made up.")
    path = page.write_page(tmp_path, {"toy_ratio": 12.345}, [curve], ["workers"])
    text = path.read_text()
    assert "| `toy_ratio` | 12.3 |" in text
    assert "| 10 | 5.25 |" in text
    assert "images/bench-toy.svg" in text
    assert "Not measured in this run: workers." in text
    first = (tmp_path / "images" / "bench-toy.svg").read_bytes()
    page.plot(curve, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == first


def test_sections_by_name() -> None:
    with pytest.raises(CF2Error, match="'workers'"):
        bench.run(sections=["worker"])
    assert json.dumps(bench.run(sections=[])) == "{}"
    assert doctest.testmod(bench).failed == 0


def test_the_command_prints_one_flat_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SECTIONS", {"toy": lambda root: {"toy_ratio": 12.34567, "toy_seconds": 0.5}})
    done = CliRunner().invoke(app, ["bench", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"toy_ratio": 12.35, "toy_seconds": 0.5}
