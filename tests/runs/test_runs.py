"""Runs lose nothing and mix nothing: killed, damaged, full disks, other choices."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ring import KEYS, ring_source, spec_of

import cf2
from cf2 import spec as specs
from cf2.errors import CF2Error
from cf2.results.explanation import same_results
from cf2.runs import engines, whole_files
from cf2.runs.directory import OWN, Run, create_run, open_run
from cf2.spec import Spec


def make(path: Path, **changes: Any) -> Run:
    options: dict[str, Any] = {"source": ring_source(), "spec": spec_of(), "keys": KEYS, "chunk_size": 3}
    return create_run(path, **{**options, **changes})


def pending(run: Run) -> list[int]:
    return [chunk.number for chunk in run.pending(run.jobs()[0])]


def shard_files(run: Run) -> list[Path]:
    return sorted((run.path / "shards").iterdir())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make(tmp_path_factory.mktemp("runs") / "whole")
    engines.explain_run(run)
    return run


def test_a_run_gives_back_what_was_explained(undisturbed: Run) -> None:
    found = open_run(undisturbed.path).explanations()
    request = ring_source().request(KEYS, spec_of())
    assert [e.key for e in found] == KEYS
    assert same_results(found, engines.explain_many(request, KEYS, chunk_size=3))
    assert found.context["class_names"] == ["a", "b", "c"]
    assert [e.label for e in found] == [key % 3 for key in KEYS]
    assert pending(undisturbed) == []


def test_the_manifest_says_what_was_done(undisturbed: Run) -> None:
    manifest = json.loads((undisturbed.path / "manifest.json").read_text())
    assert manifest["keys"] == KEYS
    (job,) = manifest["jobs"]
    assert set(job) == {option.name for option in specs.options()}
    assert (job["method"], job["settings"]["epochs"], job["settings"]["alpha"]) == ("cf2-relaxed", 12, 0.6)
    assert {"cf2", "torch", "torch_geometric"} <= set(manifest["versions"])
    assert not list(undisturbed.path.glob("partial-*"))


def test_same_results_notices_any_difference_but_time(undisturbed: Run) -> None:
    found = list(undisturbed.explanations())
    assert same_results(found, [replace(e, seconds=9.0) for e in found])
    assert not same_results(found, found[:-1])
    first = found[0]
    others = [
        {"key": 39},
        {"sufficient": not first.sufficient},
        {"scores": first.scores + 1e-6},
        {"selected": ~first.selected},
        {"units": replace(first.units, ids=first.units.ids + 1)},
        {"status": "found"},
    ]
    for other in others:
        assert not same_results(found, [replace(first, **other), *found[1:]]), other


def test_an_interrupted_run_is_resumed_to_the_same_result(tmp_path: Path, undisturbed: Run) -> None:
    run = make(tmp_path / "run")
    (job,) = run.jobs()

    def stop_after_three(number: int, found: Any) -> None:
        if number == 3:
            raise KeyboardInterrupt
        run.write(job, number, found)

    with pytest.raises(KeyboardInterrupt):
        engines.explain_chunks(run.request(job), run.pending(job), KEYS, on_chunk=stop_after_three)
    assert pending(run) == [3, 4, 5, 6]
    assert [e.key for e in run.explanations()] == KEYS[:9]
    again = make(tmp_path / "run", resume=True)
    told: list[int] = []
    engines.explain_run(again, progress=told.append)
    assert same_results(again.explanations(), undisturbed.explanations())
    assert (told[0], sum(told)) == (9, len(KEYS))  # what was done before counts at once


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
    assert pending(make(tmp_path / "empty"))
    assert pending(make(tmp_path / "new", resume=True))


def test_what_a_run_killed_at_its_birth_leaves_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "run" / "shards").mkdir(parents=True)
    (tmp_path / "run" / "partial-17-context.json").write_text("{")
    assert len(pending(make(tmp_path / "run"))) == 7


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"spec": spec_of(settings={"epochs": 13})}, "settings.epochs was 12, is 13"),
        ({"keys": KEYS[:-1]}, "keys was 20 keys"),
        ({"chunk_size": 4}, "chunk_size was 3, is 4"),
        ({"spec": spec_of(units=("edges", "features"))}, 'units was ["edges"], is ["edges", "features"]'),
        ({"source": ring_source(weights=1)}, "source.weights was"),
    ],
)
def test_resuming_with_other_choices_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    make(tmp_path / "run")
    with pytest.raises(CF2Error) as error:
        make(tmp_path / "run", resume=True, **changes)
    assert says in str(error.value)


def test_a_run_goes_on_where_the_data_has_moved(tmp_path: Path) -> None:
    make(tmp_path / "run", source=ring_source(root="/old"))
    again = make(tmp_path / "run", resume=True, source=ring_source(root="/new"))
    assert again.manifest["source"]["root"] == "/old"


def test_other_versions_are_said_when_a_run_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make(tmp_path / "run").path / "manifest.json"
    path.write_text(path.read_text().replace(f'"torch": "{torch.__version__}"', '"torch": "0.1"'))
    with caplog.at_level(logging.WARNING, logger="cf2"):
        make(tmp_path / "run", resume=True)
    assert f"torch 0.1 → {torch.__version__}" in caplog.text


# -- jobs -----------------------------------------------------------------------------------------------------


def test_one_run_holds_several_methods_and_seeds(tmp_path: Path) -> None:
    run = make(tmp_path / "run", keys=KEYS[:4])
    few = {"epochs": 3}
    for job in (spec_of(seed=1, settings=few), spec_of(seed=2, settings=few), Spec("gradient", settings={"k": 2})):
        create_run(run.path, ring_source(), job, keys=KEYS[:4], chunk_size=3, resume=True)
    run = make(run.path, keys=KEYS[:4], resume=True)
    assert run.methods() == ["cf2-relaxed", "gradient"]
    for job in run.jobs():
        engines.explain_run(run, job)
    again = open_run(run.path)
    assert [e.seed for e in again.explanations("cf2-relaxed")] == [None] * 4 + [1] * 4 + [2] * 4
    assert [e.seed for e in again.explanations("cf2-relaxed", seed=2)] == [2] * 4
    assert {e.method for e in again.explanations("gradient")} == {"gradient"}
    with pytest.raises(CF2Error, match=r"settings\.epochs"):
        run.add(spec_of(seed=1, settings={"epochs": 4}))
    with pytest.raises(CF2Error, match="Expected a method and seed of the run"):
        run.explanations("random")


OTHER: dict[str, Any] = {
    "method": "gradient",
    "units": ("features",),
    "question": "factual",
    "target": 1,
    "search": True,
    "seed": 5,
    "output": "logits",
    "level": "node",
    "directed": True,
    "masking": "messages",
    "device": "cpu",
    "max_units": 7,
    "reduce": "gradient",
    "settings": {"epochs": 3},
}


@pytest.mark.parametrize("option", [option.name for option in specs.options()])
def test_jobs_of_a_run_differ_in_method_settings_seed_and_search_and_in_nothing_else(
    tmp_path: Path, option: str
) -> None:
    run = make(tmp_path / "run")
    # another job by its seed, whatever else it changes
    job = replace(spec_of(seed=4), **{option: OTHER[option], **({"settings": {}} if option == "method" else {})})
    if option in ("method", "settings", "seed", "search"):
        run.add(job)
        assert run.jobs()[1] == job
    else:
        with pytest.raises(CF2Error, match=rf"{option} was"):
            run.add(job)
        assert len(open_run(run.path).jobs()) == 1
    assert set(OWN) == {"method", "settings", "seed", "search"}


def test_a_chunk_is_only_written_with_its_own_keys_and_by_its_own_job(tmp_path: Path, undisturbed: Run) -> None:
    run = make(tmp_path / "run")
    (job,) = run.jobs()
    found = list(undisturbed.explanations())
    with pytest.raises(CF2Error, match="Expected chunk 1 to explain"):
        run.write(job, 1, found[:3])
    with pytest.raises(CF2Error, match="Expected chunk 99 to explain"):
        run.write(job, 99, found[:3])
    with pytest.raises(CF2Error, match="Expected explanations for chunk 0"):
        run.write(job, 0, [])
    with pytest.raises(CF2Error, match="Expected explanations by cf2-relaxed-seed3"):
        run.write(run.add(spec_of(seed=3)), 0, found[:3])
    assert not shard_files(run)


def test_writing_shards_does_not_list_the_directory_again_and_again(
    tmp_path: Path, undisturbed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    real = Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: listed.append(str(path)) or real(path, pattern))
    counts = []
    for count in (4, 20):
        run = make(tmp_path / f"run-{count}", keys=KEYS[:count], chunk_size=1)
        listed.clear()
        engines.explain_run(run)
        assert len(shard_files(run)) == count
        counts.append(len(listed))
    assert counts[0] == counts[1] <= 2


# -- damage ---------------------------------------------------------------------------------------------------


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
        assert pending(again) == [2]
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

    monkeypatch.setattr(whole_files.os, "fsync", full)
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
        assert len(pending(open_run(run.path))) == len(KEYS) - done
        assert len(open_run(run.path).explanations()) == done
    finally:
        os.system(f"umount -l {place}")


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="not there"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(CF2Error, match=r"without a manifest\.json"):
        open_run(tmp_path)
    for content in ("{", "[]", '{"format": 2}'):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(CF2Error, match=r"manifest\.json"):
            open_run(tmp_path)
    with pytest.raises(CF2Error, match="Expected every key once"):
        make(tmp_path / "twice", keys=[1, 1])


def _other_format(path: Path) -> None:
    """Have a file say that it was written in format 99, and be intact otherwise."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        stored = json.loads(table.schema.metadata[b"cf2"]) | {"format": 99}
        pq.write_table(table.replace_schema_metadata({b"cf2": json.dumps(stored)}), path)
    elif path.suffix == ".safetensors":
        from safetensors.torch import load_file, save_file

        stored = {"format": 99, "method": "gem", "settings": {}, "facts": {}}
        save_file(load_file(path), path, metadata={"cf2": json.dumps(stored)})
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))


@pytest.mark.parametrize("file", ["manifest.json", "found.json", "found.parquet", "trained.safetensors"])
def test_a_file_of_another_format_is_refused(tmp_path: Path, undisturbed: Run, file: str) -> None:
    path = tmp_path / file
    read: Any = cf2.load
    if file == "manifest.json":
        make(tmp_path / "run")
        path, read = tmp_path / "run" / file, lambda path: open_run(path.parent)
    elif file == "trained.safetensors":
        source, read = ring_source(), cf2.load_trained
        cf2.fit(source.model, source.graphs[0], KEYS[:3], method="gem", epochs=1).save(path)
    else:
        undisturbed.explanations().save(path)
    read(path)
    _other_format(path)
    with pytest.raises(CF2Error, match=r"to have format \d+, but got 99"):
        read(path)


def test_a_trained_explainer_is_kept_with_the_run(tmp_path: Path) -> None:
    spec = Spec("pgexplainer", seed=0, settings={"k": 2, "epochs": 2})
    run = make(tmp_path / "run", spec=spec)
    engines.explain_run(run)
    (kept,) = run.path.glob("trained-*")
    first = kept.read_bytes()
    assert cf2.load_trained(kept).facts["instances"] == 20  # what is explained is not trained on
    shard_files(run)[1].unlink()
    whole = run.explanations()
    again = make(tmp_path / "run", spec=spec, resume=True)
    engines.explain_run(again)
    assert kept.read_bytes() == first  # a second training would have taken another time
    assert len(again.explanations()) == len(KEYS) == len(whole) + 3
    assert [e.size for e in again.explanations()] == [2] * len(KEYS)


# -- killed ---------------------------------------------------------------------------------------------------


def do_run(path: str, engine: str) -> None:
    torch.set_num_threads(1)
    engines.explain_run(make(Path(path), resume=True), engine=engine, workers=2)


def kill_and_resume(path: Path, kills: int, engine: str, rng: random.Random) -> int:
    """Start the run again and again, killing it at a random moment after it came a random way further."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cf2.runs.engines.processes"])
    killed = 0
    for _ in range(kills):
        child = context.Process(target=do_run, args=(str(path), engine))
        child.start()
        goal = len(list(path.glob("shards/*"))) + rng.randrange(2)
        while child.is_alive() and len(list(path.glob("shards/*"))) < goal:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        killed += child.is_alive()
        child.kill()
        child.join()
    last = context.Process(target=do_run, args=(str(path), engine))
    last.start()
    last.join()
    assert last.exitcode == 0
    return killed


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_killed_and_resumed_equals_undisturbed(tmp_path: Path, undisturbed: Run, engine: str) -> None:
    assert kill_and_resume(tmp_path / "run", 3, engine, random.Random(engine)) > 0
    assert same_results(open_run(tmp_path / "run").explanations(), undisturbed.explanations())
    assert len(shard_files(open_run(tmp_path / "run"))) == 7


@pytest.mark.slow
def test_killed_ten_times_and_resumed_equals_undisturbed(tmp_path: Path, undisturbed: Run) -> None:
    for trial in range(3):
        path = tmp_path / f"run-{trial}"
        assert kill_and_resume(path, 10, "local", random.Random(trial)) > 0
        assert same_results(open_run(path).explanations(), undisturbed.explanations())
