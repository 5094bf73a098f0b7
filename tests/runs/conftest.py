"""What the tests of runs share: a finished run, and shards that are written part by part."""

from __future__ import annotations

import pytest
from ring import make

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
