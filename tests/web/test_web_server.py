"""`serve` opens a run, and only a run."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cf2.errors import CF2Error
from cf2.paper.sources import from_function
from cf2.runs.directory import create_run, open_run
from cf2.spec import Spec
from cf2.web.server import explanations, inside, serve
from report.explained_toys import explained, first_edge

pytest.importorskip("dash_cytoscape", reason="dash-cytoscape is not installed")

KEYS = list(range(12))


def test_a_run_outside_of_the_given_directory_cannot_be_reached(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    (root / "good").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    os.symlink(tmp_path / "secret", root / "link")
    assert inside(root / "good", root) == (root / "good").resolve()
    for path in (root / ".." / "secret", root / "link", "/etc", tmp_path / "runs-of-others"):
        with pytest.raises(CF2Error, match="inside of"):
            inside(path, root)
        with pytest.raises(CF2Error, match="inside of"):
            serve(path, root=root)


def test_what_is_no_run_and_what_is_no_port_is_said(tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="directory of a run"):
        serve(tmp_path / "none")
    with pytest.raises(CF2Error, match="port"):
        serve(tmp_path, port=70_000)


def small_run(folder: Path) -> Path:
    """A finished run on disk, of the model and data that a function returns."""
    source = from_function("report.explained_toys:red_function")
    spec = Spec(method="random", settings={"k": 1}, seed=0)
    run = create_run(folder / "run", source, spec, keys=KEYS)
    run.write(run.jobs()[0], 0, explained(first_edge, "random", KEYS, seed=0).items)
    return run.path


class Stop(Exception):
    pass


def test_a_run_is_served_from_its_directory(tmp_path: Path) -> None:
    seen: list[str] = []

    def ready(address: str) -> None:
        seen.append(address)
        raise Stop

    path = small_run(tmp_path)
    with pytest.raises(Stop):
        serve(path, port=0, root=tmp_path, ready=ready)
    assert seen[0].startswith("http://127.0.0.1:")


def test_listening_beyond_this_machine_is_warned_of(tmp_path: Path) -> None:
    def ready(address: str) -> None:
        raise Stop

    path = small_run(tmp_path)
    with pytest.raises(Stop), pytest.warns(UserWarning, match="everyone who can reach this machine"):
        serve(path, host="0.0.0.0", port=0, ready=ready)


def test_every_job_of_a_run_has_its_name_and_its_request(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    again = run.add(replace(run.jobs()[0], seed=1))
    run.write(again, 0, explained(first_edge, "random", KEYS, seed=1).items)
    found = explanations(run)
    assert list(found) == ["random", "random, seed 1"]
    assert [{e.seed for e in given} for given in found.values()] == [{0}, {1}]
    assert [given.context["spec"]["seed"] for given in found.values()] == [0, 1]
