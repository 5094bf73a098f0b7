from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from cf2 import engines, runs, shards
from cf2.errors import CF2Error
from cf2.models import build
from cf2.runs import Run, create_run, open_run, same_results
from cf2.subjects import Subject, fingerprint

METHOD = "cf2-relaxed"
SETTINGS = {"epochs": 12}
KEYS = list(range(0, 40, 2))


def subject(weights: int = 0) -> Subject:
    """A ring of 40 nodes with chords, and an untrained model."""
    with torch.random.fork_rng():
        torch.manual_seed(weights)
        model = build("gcn", task="node", num_features=4, num_classes=3, hidden=8, layers=2)
    at = torch.arange(40)
    ahead = torch.cat([torch.stack([at, (at + 1) % 40]), torch.stack([at, (at * 7 + 3) % 40])], 1)
    ahead = ahead[:, ahead[0] != ahead[1]]
    data = Data(x=torch.eye(4)[at % 4], edge_index=torch.cat([ahead, ahead.flip(0)], 1), y=at % 3)
    description = {"kind": "test", "weights": fingerprint(model.state_dict().values())}
    return Subject(model, "node", [data], ("a", "b", "c"), description=description)


def make(path: Path, **changes: Any) -> Run:
    options: dict[str, Any] = {"keys": KEYS, "method": METHOD, "settings": SETTINGS, "chunk_size": 3}
    return create_run(path, **{"subject": subject(), **options, **changes})


def shard_files(run: Run) -> list[Path]:
    return sorted((run.path / "shards").iterdir())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make(tmp_path_factory.mktemp("runs") / "whole")
    engines.explain_run(run)
    return run


def test_a_run_gives_back_what_was_explained(undisturbed: Run) -> None:
    found = open_run(undisturbed.path).explanations()
    work = subject().work(KEYS, method=METHOD, settings=SETTINGS)
    assert [e.key for e in found] == KEYS
    assert same_results(found, engines.explain_many(work, KEYS, chunk_size=3))
    assert found.context["class_names"] == ["a", "b", "c"]
    assert [e.label for e in found] == [key % 3 for key in KEYS]
    assert undisturbed.pending() == []


def test_the_manifest_says_what_was_done(undisturbed: Run) -> None:
    manifest = json.loads((undisturbed.path / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert manifest["keys"] == KEYS
    assert manifest["jobs"][0]["method"] == METHOD
    assert manifest["jobs"][0]["settings"]["epochs"] == 12
    assert {"cf2", "torch", "torch_geometric"} <= set(manifest["versions"])
    assert not list(undisturbed.path.glob("partial-*"))


def test_same_results_notices_any_difference_but_time(undisturbed: Run) -> None:
    from dataclasses import replace

    found = list(undisturbed.explanations())
    assert same_results(found, [replace(e, seconds=9.0) for e in found])
    assert not same_results(found, found[:-1])
    assert not same_results(found, [replace(found[0], sufficient=not found[0].sufficient), *found[1:]])
    assert not same_results(found, [replace(found[0], scores=found[0].scores + 1e-6), *found[1:]])


def test_an_interrupted_run_is_resumed_to_the_same_result(tmp_path: Path, undisturbed: Run) -> None:
    run = make(tmp_path / "run")

    def stop_after_three(number: int, found: Any) -> None:
        if number == 3:
            raise KeyboardInterrupt
        run.write(number, found)

    work = subject().work(KEYS, method=METHOD, settings=SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        engines.explain_chunks(work, run.pending(), KEYS, on_chunk=stop_after_three)
    assert [number for number, _ in run.pending()] == [3, 4, 5, 6]
    assert [e.key for e in run.explanations()] == KEYS[:9]
    again = make(tmp_path / "run", resume=True)
    engines.explain_run(again)
    assert same_results(again.explanations(), undisturbed.explanations())


def test_a_directory_that_is_in_use_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "run")
    with pytest.raises(CF2Error, match=r"holds a run.*--resume"):
        make(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    for resume in (False, True):
        with pytest.raises(CF2Error, match=r"holds thesis\.tex"):
            make(tmp_path / "other", resume=resume)
    (tmp_path / "file").write_text("")
    with pytest.raises(CF2Error, match="the file"):
        make(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert make(tmp_path / "empty").pending()
    assert make(tmp_path / "new", resume=True).pending()


def test_what_a_run_killed_at_its_birth_leaves_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "run" / "shards").mkdir(parents=True)
    (tmp_path / "run" / "partial-17-context.json").write_text("{")
    assert len(make(tmp_path / "run").pending()) == 7


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"settings": {"epochs": 13}}, "settings.epochs was 12, is 13"),
        ({"keys": KEYS[:-1]}, "keys was 20 keys"),
        ({"chunk_size": 4}, "chunk_size was 3, is 4"),
        ({"features": True}, "features was false, is true"),
        ({"subject": subject(weights=1)}, "subject.weights"),
    ],
)
def test_resuming_with_other_choices_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    make(tmp_path / "run")
    with pytest.raises(CF2Error) as error:
        make(tmp_path / "run", resume=True, **changes)
    assert says in str(error.value)


def test_one_run_holds_several_methods_and_seeds(tmp_path: Path) -> None:
    run = make(tmp_path / "run", keys=KEYS[:4])
    run.add(METHOD, {"epochs": 3}, seed=1)
    run.add(METHOD, {"epochs": 3}, seed=2)
    assert run.methods() == [METHOD]
    for job in run.jobs():
        engines.explain_run(run, method=job.method, seed=job.seed)
    again = open_run(run.path)
    assert [e.seed for e in again.explanations(METHOD)] == [None] * 4 + [1] * 4 + [2] * 4
    assert [e.seed for e in again.explanations(METHOD, seed=2)] == [2] * 4
    with pytest.raises(CF2Error, match=r"settings\.epochs"):
        run.add(METHOD, {"epochs": 4}, seed=1)
    with pytest.raises(CF2Error, match="Expected a method and seed of the run"):
        run.explanations("gradient")


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_shard_is_named_and_done_again(
    tmp_path: Path, undisturbed: Run, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    run = make(tmp_path / "run")
    engines.explain_run(run)
    victim = shard_files(run)[2]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    half = bytes(content[: len(content) // 2])
    victim.write_bytes({"truncate": half, "flip": bytes(content), "empty": b""}[damage])
    again = make(tmp_path / "run", resume=True)
    with caplog.at_level(logging.WARNING, logger="cf2"):
        assert [number for number, _ in again.pending()] == [2]
        assert [e.key for e in again.explanations()] == KEYS[:6] + KEYS[9:]
    assert victim.name in caplog.text
    engines.explain_run(again)
    assert same_results(again.explanations(), undisturbed.explanations())
    assert len(shard_files(again)) == 7


def test_a_full_disk_is_said_and_nothing_half_written_is_trusted(
    tmp_path: Path, undisturbed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(tmp_path / "run")
    real, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 4:  # every shard takes two: itself, and its directory
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(shards.os, "fsync", full)
    with pytest.raises(CF2Error, match=r"No space left on device.*--resume"):
        engines.explain_run(run)
    monkeypatch.undo()
    assert len(shard_files(run)) == 2
    assert not list(run.path.glob("partial-*"))
    engines.explain_run(make(tmp_path / "run", resume=True))
    assert same_results(run.explanations(), undisturbed.explanations())


def test_a_really_full_disk(tmp_path: Path) -> None:
    """The same on a file system of 64 KiB, where one can be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    if os.name != "posix" or os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=64k none {place} 2>/dev/null"):
        pytest.skip("cannot mount a small file system here")
    try:
        run = make(place / "run", chunk_size=1)
        with pytest.raises(CF2Error, match="No space left"):
            engines.explain_run(run)
        done = len(shard_files(run))
        assert 0 < done < len(KEYS)
        assert len(open_run(run.path).pending()) == len(KEYS) - done
        assert len(open_run(run.path).explanations()) == done
    finally:
        os.system(f"umount -l {place}")


def test_a_chunk_is_only_written_with_its_own_keys(tmp_path: Path, undisturbed: Run) -> None:
    run = make(tmp_path / "run")
    found = list(undisturbed.explanations())
    with pytest.raises(CF2Error, match="Expected chunk 1 to explain"):
        run.write(1, found[:3])
    with pytest.raises(CF2Error, match="Expected explanations for chunk 0"):
        run.write(0, [])


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="not there"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(CF2Error, match=r"without a manifest\.json"):
        open_run(tmp_path)
    for content in ("{", "[]", '{"format": 99, "jobs": []}'):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(CF2Error, match=r"manifest\.json"):
            open_run(tmp_path)
    with pytest.raises(CF2Error, match="Expected every key once"):
        make(tmp_path / "twice", keys=[1, 1])


def test_a_trained_explainer_is_kept_with_the_run(tmp_path: Path) -> None:
    from cf2 import api

    options: dict[str, Any] = {"method": "pgexplainer", "settings": {"k": 2, "epochs": 2}, "seed": 0}
    run = make(tmp_path / "run", **options)
    data = subject().graphs[0]
    fits: list[int] = []

    def fit() -> Any:
        fits.append(1)
        return api.fit(subject().model, data, KEYS, method="pgexplainer", seed=0, k=2, epochs=2)

    engines.explain_run(run, method="pgexplainer", seed=0, fit=fit)
    shard_files(run)[1].unlink()
    whole = run.explanations()
    again = make(tmp_path / "run", resume=True, **options)
    engines.explain_run(again, method="pgexplainer", seed=0, fit=fit)
    assert len(fits) == 1
    assert len(again.explanations()) == len(KEYS) == len(whole) + 3
    assert [e.size for e in again.explanations()] == [2] * len(KEYS)


def do_run(path: str, engine: str) -> None:
    torch.set_num_threads(1)
    run = make(Path(path), resume=True)
    engines.explain_run(run, engine=engine, workers=2)


def kill_and_resume(path: Path, kills: int, engine: str, rng: random.Random) -> int:
    """Start the run again and again, killing it at a random moment after it came a random way further."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cf2.engines.processes"])
    killed = 0
    for _ in range(kills):
        child = context.Process(target=do_run, args=(str(path), engine))
        child.start()
        shards_now = len(list(path.glob("shards/*")))
        goal, deadline = shards_now + rng.randrange(2), time.monotonic() + 60
        while child.is_alive() and len(list(path.glob("shards/*"))) < goal and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        killed += child.is_alive()
        child.kill()
        child.join()
    last = context.Process(target=do_run, args=(str(path), engine))
    last.start()
    last.join(120)
    assert last.exitcode == 0
    return killed


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_killed_and_resumed_equals_undisturbed(tmp_path: Path, undisturbed: Run, engine: str) -> None:
    assert kill_and_resume(tmp_path / "run", 3, engine, random.Random(engine)) > 0
    assert same_results(open_run(tmp_path / "run").explanations(), undisturbed.explanations())
    assert len(shard_files(runs.open_run(tmp_path / "run"))) == 7


@pytest.mark.slow
def test_killed_ten_times_and_resumed_equals_undisturbed(tmp_path: Path, undisturbed: Run) -> None:
    for trial in range(3):
        path = tmp_path / f"run-{trial}"
        assert kill_and_resume(path, 10, "local", random.Random(trial)) > 0
        assert same_results(open_run(path).explanations(), undisturbed.explanations())
