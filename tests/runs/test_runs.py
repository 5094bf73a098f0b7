"""Runs lose nothing and mix nothing: what they hold, how they go on, other choices, several jobs, kills."""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ring import KEYS, left, make, ring_source, shard_files, spec_of

from cf2 import options as specs
from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.runs import engines, store
from cf2.runs.store import EDIT_OPTIONS, Finished, Store
from toys import same_results


def test_a_run_gives_back_what_was_explained(undisturbed: Store) -> None:
    found = Store.open(undisturbed.path).explanations()
    request = ring_source().request(KEYS, spec_of())
    assert [e.key for e in found] == KEYS
    assert same_results(found, engines.explain_many(request, KEYS, chunk_size=3))
    assert found.context["class_names"] == ["a", "b", "c"]
    assert [e.label for e in found] == [key % 3 for key in KEYS]
    assert left(undisturbed) == []


def test_the_manifest_says_what_was_done(undisturbed: Store) -> None:
    manifest = json.loads((undisturbed.path / "manifest.json").read_text())
    assert manifest["keys"] == KEYS
    (job,) = manifest["jobs"]
    assert set(job) == {option.name for option in specs.options()}
    assert (job["method"], job["settings"]["epochs"], job["settings"]["alpha"]) == ("cf2-relaxed", 12, 0.6)
    assert {"cf2", "torch", "torch_geometric"} <= set(manifest["versions"])
    assert not list(undisturbed.path.glob("partial-*"))


def test_same_results_notices_any_difference_but_time(undisturbed: Store) -> None:
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
        {"status": "impossible"},
    ]
    for other in others:
        assert not same_results(found, [replace(first, **other), *found[1:]]), other


def test_a_run_that_is_not_finished_says_so(tmp_path: Path, undisturbed: Store) -> None:
    assert undisturbed.finished() == [Finished("cf2-relaxed", 20, 20)]
    whole = undisturbed.explanations().context
    assert (whole["finished"], whole["asked"], "partial" in whole) == (20, 20, False)
    run = make(tmp_path / "run")
    run.write(run.jobs()[0], 0, undisturbed.explanations().items[4:11])
    run.add(Spec("gradient", seed=1))
    run.add(Spec("gradient", seed=2))
    assert run.finished() == [Finished("cf2-relaxed", 7, 20), Finished("gradient", 0, 40)]
    found = run.explanations("cf2-relaxed")
    assert (found.context["finished"], found.context["asked"]) == (7, 20)
    assert "7 of 20 by cf2-relaxed" in found.context["partial"]
    assert "--resume" in found.context["partial"]


def test_a_directory_that_is_in_use_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "run")
    with pytest.raises(CF2Error, match=r"holds a run.*--resume"):
        make(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    for resume in (False, True):
        with pytest.raises(CF2Error, match=r"holds thesis\.tex"):
            make(tmp_path / "other", resume=resume)
    (tmp_path / "killed at its birth" / "shards").mkdir(parents=True)
    (tmp_path / "killed at its birth" / "partial-17-context.json").write_text("{")
    (tmp_path / "empty").mkdir()
    assert left(make(tmp_path / "killed at its birth")) == left(make(tmp_path / "empty")) == KEYS
    assert left(make(tmp_path / "new", resume=True)) == KEYS


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


def test_other_versions_are_said_when_a_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store.versions()
    with monkeypatch.context() as earlier:
        earlier.setattr("cf2.runs.store.versions", lambda: real | {"torch": "0.1"})
        make(tmp_path / "run")
    with caplog.at_level(logging.WARNING, logger="cf2"):
        make(tmp_path / "run", resume=True)
    assert f"torch 0.1 → {torch.__version__}" in caplog.text


def test_a_run_of_a_version_with_fewer_options_is_read(tmp_path: Path, undisturbed: Store) -> None:
    run = make(tmp_path / "run")
    job = {name: value for name, value in run.manifest["jobs"][0].items() if not name.startswith("contexts")}
    run.update(jobs=[job])
    identity = run.identity(run.jobs()[0]) | {"spec": store.digest_of(job)}  # as that version wrote it
    run.write_shard(0, identity, undisturbed.explanations().items)
    assert Store.open(run.path).finished() == [Finished("cf2-relaxed", 20, 20)]


# -- jobs -----------------------------------------------------------------------------------------------------


def test_one_run_holds_several_methods_and_seeds(tmp_path: Path) -> None:
    run = make(tmp_path / "run", keys=KEYS[:4])
    few = {"epochs": 3}
    for job in (spec_of(seed=1, settings=few), spec_of(seed=2, settings=few), Spec("gradient", settings={"k": 2})):
        Store.create(run.path, ring_source(), job, keys=KEYS[:4], chunk_size=3, resume=True)
    run = make(run.path, keys=KEYS[:4], resume=True)
    assert run.methods() == ["cf2-relaxed", "gradient"]
    for job in run.jobs():
        engines.explain_run(run, job)
    again = Store.open(run.path)
    assert [e.seed for e in again.explanations("cf2-relaxed")] == [None] * 4 + [1] * 4 + [2] * 4
    assert [e.seed for e in again.explanations("cf2-relaxed", seed=2)] == [2] * 4
    assert {e.method for e in again.explanations("gradient")} == {"gradient"}
    with pytest.raises(CF2Error, match=r"settings\.epochs"):
        run.add(spec_of(seed=1, settings={"epochs": 4}))
    with pytest.raises(CF2Error, match="Expected a method and seed of the run"):
        run.explanations("random")


OPTIONS = [option.name for option in specs.options() if option.name != "robust"]


def other_job(spec: Spec, **changes: Any) -> Any:
    """A job beside that of a Spec whose options are said to be others."""
    changed = spec.to_json() | {"seed": 4} | changes
    return SimpleNamespace(name="another", question=changed["question"], to_json=lambda: changed)


@pytest.mark.parametrize("option", OPTIONS)
def test_jobs_of_a_run_differ_in_method_settings_seed_search_and_question_and_in_nothing_else(
    tmp_path: Path, option: str
) -> None:
    run = make(tmp_path / "run")
    (known,) = run.jobs()
    job = other_job(known, **{option: {"epochs": 3} if option == "settings" else "another"})
    if option in ("method", "settings", "seed", "search", "sizes", "question"):
        run.add(job)
        assert run.manifest["jobs"][1] == job.to_json()
    else:
        with pytest.raises(CF2Error, match=rf"{option}(\.\w+)? was"):
            run.add(job)
        assert len(Store.open(run.path).jobs()) == 1


def test_a_counterfactual_beside_another_question_may_differ_in_its_edits(tmp_path: Path) -> None:
    run = make(tmp_path / "run", spec=Spec("gradient", settings={"k": 2}))
    (first,) = run.jobs()
    run.add(other_job(first, question="counterfactual", **dict.fromkeys(EDIT_OPTIONS, "another")))
    run = make(tmp_path / "named", spec=first)
    run.add(replace(first, question="counterfactual", edits=("remove", "add")))
    assert [spec.name for spec in run.jobs()] == ["gradient", "gradient-counterfactual"]
    assert list(run.rows()) == ["gradient", "gradient, counterfactual"]
    with pytest.raises(CF2Error, match=r"units was"):
        run.add(other_job(first, question="counterfactual", units="another"))


def test_a_shard_is_only_written_with_keys_that_are_left_and_by_its_own_job(tmp_path: Path, undisturbed: Store) -> None:
    run = make(tmp_path / "run")
    (job,) = run.jobs()
    found = list(undisturbed.explanations())
    with pytest.raises(CF2Error, match="Expected keys of cf2-relaxed that are not finished"):
        run.write(job, 0, [replace(found[0], key=1)])
    with pytest.raises(CF2Error, match="each once"):
        run.write(job, 0, [found[0], found[0]])
    with pytest.raises(CF2Error, match="Expected explanations for shard 0"):
        run.write(job, 0, [])
    with pytest.raises(CF2Error, match="Expected explanations by cf2-relaxed-seed3"):
        run.write(run.add(spec_of(seed=3)), 0, found[:3])
    assert not shard_files(run)
    run.write(job, 0, found[:3])
    with pytest.raises(CF2Error, match="that are not finished"):
        run.write(job, 1, found[2:5])
    assert left(run) == KEYS[3:]


def test_writing_shards_does_not_list_the_directory_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: None
) -> None:
    listed: list[str] = []
    real = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: listed.append(str(path)) or real(path))
    counts = []
    for count in (4, 20):
        run = make(tmp_path / f"run-{count}", keys=KEYS[:count], chunk_size=1)
        listed.clear()
        engines.explain_run(run)
        counts.append(len(listed))
        assert len(shard_files(run)) == count
    assert counts[0] == counts[1] <= 3


def test_shards_are_written_by_time_by_size_and_at_the_end(
    tmp_path: Path, undisturbed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [replace(e, seconds=0.1) for e in undisturbed.explanations()]
    written: list[int] = []
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(store, "time", clock)
    run = make(tmp_path / "run")
    monkeypatch.setattr(run, "write", lambda spec, number, part: written.append(len(part)))
    with run.writer(run.jobs()[0]) as write:
        for at, e in enumerate(found[:10]):
            clock.now = float(at)
            write([e])
        assert written == [6]  # after five seconds
        write([replace(found[10], seconds=5.1)])  # this one alone took long
        assert written == [6, 5]
        monkeypatch.setattr(store, "MAX_WAITING", 3)
        write(found[11:15])
        assert written == [6, 5, 4]
        write(found[15:16])
    assert written == [6, 5, 4, 1]


# -- killed ---------------------------------------------------------------------------------------------------


def do_run(path: str, engine: str) -> None:
    torch.set_num_threads(1)
    store.SECONDS_PER_SHARD = 0.0
    engines.explain_run(make(Path(path), resume=True), engine=engine, workers=2)


def kill_and_resume(path: Path, kills: int, engine: str, rng: random.Random) -> int:
    """Start the run again and again, killing it at a random moment after it came a random way further."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["cf2.runs.engines.machine"])
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
def test_killed_and_resumed_equals_undisturbed(tmp_path: Path, undisturbed: Store, engine: str) -> None:
    assert kill_and_resume(tmp_path / "run", 3, engine, random.Random(engine)) > 0
    run = Store.open(tmp_path / "run")
    assert same_results(run.explanations(), undisturbed.explanations())
    assert not list(run.path.glob("partial-*"))
