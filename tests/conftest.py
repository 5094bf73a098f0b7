"""What all tests share: one thread, no network, toys that can be imported from every folder, and packed problems."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

HERE = str(Path(__file__).parent)
if HERE not in sys.path:  # the toys lie here, and pytest only adds the folders of the files that it collects
    sys.path.insert(0, HERE)

if TYPE_CHECKING:
    from cf2.methods.contract import Problem
    from cf2.units.kinds import UnitKind


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are marked `data` are skipped where the raw files are not."""
    if os.environ.get("CF2_DATA"):
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason="CF2_DATA does not name a directory with the raw files"))


@pytest.fixture
def problem_of() -> Iterator[Callable[..., Problem]]:
    """From the arguments of `cf2.explain` to the packed problem that a method would get, with the model borrowed."""
    from cf2 import api
    from cf2.runs.session import ModelCache, Session

    with ExitStack() as sessions:

        def make(model: Any, data: Any, nodes: Any = None, **options: Any) -> Problem:
            given = {**options.pop("settings", {}), **options}
            request, keys = api.plan(ModelCache(model, data), nodes, None, given)
            (problem,) = sessions.enter_context(Session(request)).problems(keys)
            return problem

        yield make


@pytest.fixture
def whole_nodes() -> Iterator[UnitKind]:
    """A user's own kind of unit, known while the test runs: a node with all its edges and features."""
    import toys
    from cf2.units import kinds as units

    yield units.register_unit_kind(toys.WHOLE_NODES)
    del units.KINDS[toys.WHOLE_NODES.name]


@pytest.fixture(autouse=True)
def edges_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests check sets of edges by plain code; `runs/test_auto_units.py` asks for what users get."""
    monkeypatch.setattr("cf2.api.DEFAULT_UNITS", "edges")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cf2"
