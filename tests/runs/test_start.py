"""A start that fails leaves nothing behind: the corrected command needs no --resume."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ring import KEYS, contents, make, ring_source, spec_of

from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.runs import engines
from cf2.runs.store import Store


def start(path: Path, engine: str = "local", **changes: Any) -> None:
    run = make(path, **changes)
    engines.explain_run(run, run.job(run.jobs()[-1].method, run.jobs()[-1].seed), engine=engine)


def broken() -> Any:
    """The ring with a model that says nothing but NaN."""
    source = ring_source()
    for weight in source.model.parameters():
        weight.data.fill_(float("nan"))
    return source


WRONG: dict[str, dict[str, Any]] = {
    "setting": {"spec": spec_of(settings={"epoch": 3})},
    "method": {"spec": Spec("gradiant")},
    "keys": {"keys": [99]},
    "twice": {"keys": [1, 1]},
    "nothing to train on": {"spec": Spec("gem", seed=0), "keys": list(range(40))},
    "no truth": {"spec": Spec("truth")},
    "model": {"source": broken()},
    "engine": {"engine": "rey"},
    "ray": {"engine": "ray"},
    "device": {"spec": spec_of(device="abacus")},
    "class": {"spec": spec_of(target=9)},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_start_that_fails_leaves_the_place_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    if wrong == "ray":
        monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "empty").mkdir()
    before = contents(tmp_path)
    for path in (tmp_path / "empty", tmp_path / "a" / "b"):
        with pytest.raises(CF2Error):
            start(path, **WRONG[wrong])
        assert contents(tmp_path) == before
    start(path)
    assert len(Store.open(path).explanations()) == len(KEYS)


@pytest.mark.parametrize("failing", ["storage.write_bytes", "storage.write_json", "runs.engines.explain_chunks"])
@pytest.mark.parametrize("spec", [spec_of(), Spec("gem", seed=0, settings={"epochs": 1, "k": 2})])
def test_whatever_fails_before_anything_is_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, spec: Spec
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise CF2Error("Expected more luck")

    with monkeypatch.context() as patch:
        patch.setattr(f"cf2.{failing}", fail)
        with pytest.raises(CF2Error, match="luck"):
            start(tmp_path / "a" / "b", spec=spec)
    assert contents(tmp_path) == {}
    start(tmp_path / "a" / "b", spec=spec)


def test_a_second_method_that_fails_leaves_the_run_with_the_first(
    tmp_path: Path, undisturbed: Store, failing: Spec
) -> None:
    start(tmp_path / "run")
    before = contents(tmp_path)
    for spec in (failing, Spec("truth"), spec_of(seed=2, device="abacus")):
        with pytest.raises(CF2Error):
            start(tmp_path / "run", spec=spec, resume=True)
        assert contents(tmp_path) == before
    run = make(tmp_path / "run", spec=Spec("gem", seed=0, settings={"epochs": 1, "k": 2}), resume=True)
    assert [job.name for job in run.jobs()] == ["cf2-relaxed", "gem-seed0"]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "run" / "shards").mkdir(parents=True)
    (tmp_path / "run" / "partial-0-mine").write_text("precious")
    with pytest.raises(CF2Error):
        start(tmp_path / "run", source=broken())
    assert (tmp_path / "run" / "partial-0-mine").read_text() == "precious"
