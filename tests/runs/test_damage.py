"""Shards that are damaged, renamed, foreign or twice there are named and never used; so is all that is in the way."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ring import KEYS, left, make, ring_source, shard_files, spec_of

import cf2
from cf2 import storage
from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.runs import engines
from cf2.runs.store import REFUSALS, SHARD_NAME, Store
from toys import same_results

pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture(autouse=True)
def warnings_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="cf2")


def explained(path: Path, **changes: Any) -> Path:
    """A finished run of seven shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cf2.runs.store.SECONDS_PER_SHARD", 0.0)
        run = make(path, **changes)
        engines.explain_run(run)
    assert len(shard_files(run)) == 7
    return run.path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return explained(tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Store:
    shutil.copytree(finished, tmp_path / "run")
    return Store.open(tmp_path / "run")


def renumbered(shard: Path, number: int, job: str | None = None) -> Path:
    name = SHARD_NAME.fullmatch(shard.name)
    assert name
    return shard.with_name(f"{job or name['job']}-{number:06d}.{name['digest']}.parquet")


def flipped(file: Path) -> bytes:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    return bytes(content)


OTHERS: dict[str, dict[str, Any]] = {  # runs of the same keys, with digests of their own
    "spec": {"spec": spec_of(settings={"epochs": 13})},
    "model": {"source": ring_source(weights=8)},
    "data": {"source": ring_source(swapped=True)},
    "trained": {},
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_shard_of_another_run_is_never_taken_for_ones_own(
    run: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, other: str
) -> None:
    another, shard = make(tmp_path / "other", **OTHERS[other]), shard_files(run)[1]
    identity = another.identity(another.jobs()[0])
    identity |= {"trained": "0" * 64} if other == "trained" else {}
    items = cf2.load(shard).items
    shard.unlink()
    # as it is, and as a careful forger would say whose it is
    for claimed, reason in ((identity["run"], REFUSALS["run"]), (run.manifest["id"], REFUSALS[other])):
        file = run.write_shard(90, {**identity, "run": claimed}, items)
        assert left(Store.open(run.path)) == KEYS[3:6]
        assert f"{file.name} {reason}" in caplog.text
        file.unlink()


def test_files_among_the_shards_that_do_not_count_are_named(
    run: Store, undisturbed: Store, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, *_ = shard_files(run)
    shutil.copy(first, renumbered(first, 50))
    (run.path / "shards" / "notes.txt").write_text("mine")
    (e, *_) = cf2.load(first)
    foreign = run.write_shard(70, run.identity(run.jobs()[0]), [replace(e, key=1)])
    assert same_results(Store.open(run.path).explanations(), undisturbed.explanations())
    assert f"{renumbered(first, 50).name} holds keys that {first.name} holds as well" in caplog.text
    assert "notes.txt is no shard of this run" in caplog.text
    assert f"{foreign.name} holds other keys than the run asks for" in caplog.text
    run.add(spec_of(seed=1))
    second.rename(renumbered(second, 0, "cf2-relaxed-seed1"))
    assert [finished.finished for finished in Store.open(run.path).finished()] == [17]
    assert "is of another method or seed, and was renamed" in caplog.text


# -- manifest and context -------------------------------------------------------------------------------------


def test_a_full_disk_is_said_and_nothing_half_written_is_trusted(
    tmp_path: Path, undisturbed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(tmp_path / "run")
    real, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 4:  # every shard takes two: itself, and its directory
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(CF2Error, match=r"No space left on device.*--resume"):
        engines.explain_run(run)
    monkeypatch.undo()
    assert len(shard_files(run)) == 2
    assert not list(run.path.glob("partial-*"))
    engines.explain_run(make(tmp_path / "run", resume=True))
    assert same_results(run.explanations(), undisturbed.explanations())


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="not there"):
        Store.open(tmp_path / "nowhere")
    with pytest.raises(CF2Error, match=r"without a manifest\.json"):
        Store.open(tmp_path)
    for content in ("{", "[]", '{"format": 2}', "[" * 100_000):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(CF2Error, match=r"manifest\.json"):
            Store.open(tmp_path)


# -- formats and trained explainers ---------------------------------------------------------------------------


def test_a_run_and_a_shard_of_another_format_are_refused(run: Store, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(shard_files(run)[0])
    stored = json.loads(table.schema.metadata[b"cf2"]) | {"format": 99}
    pq.write_table(table.replace_schema_metadata({b"cf2": json.dumps(stored)}), tmp_path / "other.parquet")
    file = run.path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
    for read in (lambda: cf2.load(tmp_path / "other.parquet"), lambda: Store.open(run.path)):
        with pytest.raises(CF2Error, match=r"to have format \d+, but got 99"):
            read()


PG = Spec("pgexplainer", seed=0, settings={"k": 2, "epochs": 2})


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return explained(tmp_path_factory.mktemp("runs") / "learnt", spec=PG)


@pytest.fixture
def learner(learnt: Path, tmp_path: Path) -> Store:
    shutil.copytree(learnt, tmp_path / "run")
    return Store.open(tmp_path / "run")


def test_a_trained_explainer_is_kept_with_the_run(learner: Store) -> None:
    run = learner
    (kept,) = run.path.glob("trained-*")
    first = kept.read_bytes()
    assert cf2.load_trained(kept).facts["instances"] == 20  # what is explained is not trained on
    shard_files(run)[1].unlink()
    whole = run.explanations()
    again = make(run.path, spec=PG, resume=True)
    engines.explain_run(again)
    assert kept.read_bytes() == first  # a second training would have taken another time
    assert len(again.explanations()) == len(KEYS) == len(whole) + 3
    assert [e.size for e in again.explanations()] == [2] * len(KEYS)


@pytest.mark.parametrize("damage", ["missing", "flipped", "of another training"])
def test_a_trained_explainer_that_is_not_the_runs_own_is_trained_again(
    learnt: Path, learner: Store, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = learner
    (kept,) = run.path.glob("trained-*")
    shard_files(run)[1].unlink()
    if damage == "missing":
        kept.unlink()
    elif damage == "flipped":
        kept.write_bytes(flipped(kept))
    else:
        source = ring_source()
        cf2.fit(source.model, source.graphs[0], [1, 3], method="pgexplainer", k=2, epochs=1).save(kept)
    engines.explain_run(make(run.path, spec=PG, resume=True))
    assert "is trained again" in caplog.text
    assert same_results(Store.open(run.path).explanations(), Store.open(learnt).explanations())


@pytest.mark.parametrize("limit", ["MAX_ROWS", "MAX_COLUMN_VALUES", "MAX_FILE_BYTES"])
def test_a_shard_that_claims_too_much_is_refused_before_it_is_unpacked(
    run: Store, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Its digest says that it is as it was written, and not that it was written by a friend."""
    import pyarrow.parquet as pq

    monkeypatch.setattr(f"cf2.results.files.{limit}", 1)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    there = run.survey()
    assert len(there.refused) == 7
    assert all("at most 1 " in reason for reason in there.refused.values())


def test_an_explainer_that_training_does_not_bring_back_is_not_mixed_in(learner: Store) -> None:
    shard_files(learner)[1].unlink()
    (learner.path / "trained-pgexplainer-seed0.safetensors").unlink()
    run = make(learner.path, spec=PG, resume=True)
    run.source = ring_source()
    object.__setattr__(run.source, "keys_to_train_on", lambda: [1, 3])  # as if training were not reproducible
    with pytest.raises(CF2Error, match="the explainer of the finished explanations"):
        engines.explain_run(run)
