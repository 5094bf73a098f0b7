"""What the tests of runs share: a finished run, and shards that are written part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ring import make

import cf2
from cf2.methods import registry
from cf2.options import Spec
from cf2.runs import engines
from cf2.runs import store as shards
from cf2.runs.store import Store


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A run of the ring that nothing happened to."""
    run = make(tmp_path_factory.mktemp("runs") / "whole")
    engines.explain_run(run)
    return run


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of a run goes to a shard of its own."""
    monkeypatch.setattr(shards, "SECONDS_PER_SHARD", 0.0)


def _fail(problem: Any, settings: Any) -> Any:
    raise ZeroDivisionError("as it always does")


@pytest.fixture
def failing() -> Iterator[Spec]:
    """A method of the user's own that never succeeds."""
    yield Spec(cf2.register(replace(registry.get("gradient"), name="failing", rank=_fail)).name)
    del registry._METHODS["failing"]
