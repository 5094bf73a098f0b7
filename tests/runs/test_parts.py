"""Parts: a chunk comes some seconds of work at a time, and what is done already changes nothing of the rest."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ring import KEYS, left, make, ring_source, shard_files, spec_of

from cf2.options import Spec
from cf2.results.explanation import Explanation
from cf2.runs import engines
from cf2.runs import session as sessions
from cf2.runs.answers import Answers
from cf2.runs.session import Chunk, Request, Session
from cf2.runs.store import Store
from toys import same_results


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of about three nodes of the ring."""
    monkeypatch.setattr(sessions, "UNITS_PER_PART", 60)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A run in one chunk that nothing happened to."""
    run = make(tmp_path_factory.mktemp("parts") / "whole", chunk_size=256)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "UNITS_PER_PART", 60)
        engines.explain_run(run)
    return run


def parts_of(request: Request, chunk: Chunk) -> list[list[Explanation]]:
    with Session(request) as session:
        request = session.measure(chunk.keys)
    with Session(request) as session:
        return list(session.parts(chunk))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("spec", [spec_of(), Spec("cf2"), spec_of(max_units=20), spec_of(seed=3)])
def test_parts_do_not_depend_on_what_is_done(spec: Spec) -> None:
    request = ring_source().request(KEYS, spec)
    whole = parts_of(request, Chunk(0, KEYS))
    assert len(whole) > 3
    assert sorted(e.key for part in whole for e in part) == KEYS  # type: ignore[type-var]
    rng = random.Random(0)
    for _ in range(4):
        done = frozenset(rng.sample(KEYS, rng.randrange(1, len(KEYS))))
        expected = [part for part in whole if not done.issuperset(e.key for e in part)]
        found = parts_of(request, Chunk(0, KEYS, done))
        assert [[e.key for e in part] for part in found] == [[e.key for e in part] for part in expected]
        for one, other in zip(found, expected):
            assert same_results(one, other)
    assert parts_of(request, Chunk(0, KEYS, frozenset(KEYS))) == []


def test_a_part_is_bounded_by_its_units(monkeypatch: pytest.MonkeyPatch) -> None:
    request = ring_source().request(KEYS, Spec("gradient"))
    (whole,) = parts_of(request, Chunk(0, KEYS))
    for most in (1, 60, 100):
        monkeypatch.setattr(sessions, "UNITS_PER_PART", most)
        for part in parts_of(request, Chunk(0, KEYS)):
            assert len(part) == 1 or sum(e.num_units for e in part) <= most
    with Session(request) as session:
        assert [e.key for e in session.explain(KEYS)] == [e.key for e in whole]


@pytest.mark.usefixtures("small_parts", "at_once")
def test_a_run_stopped_inside_of_its_only_chunk_goes_on_there(tmp_path: Path, whole: Store) -> None:
    for stop in (1, 2, 3):
        run = make(tmp_path / f"run-{stop}", chunk_size=256)
        told: list[int] = []

        def interrupt(steps: int, told: list[int] = told, stop: int = stop) -> None:
            told.append(steps)
            if len(told) == stop + 1:  # the first word is of what was there before
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            engines.explain_run(run, progress=interrupt)
        assert len(shard_files(run)) == stop
        (chunk,) = run.pending(run.jobs()[0])
        assert 0 < len(chunk.done) < len(KEYS)
        engines.explain_run(make(tmp_path / f"run-{stop}", chunk_size=256, resume=True))
        assert same_results(run.explanations(), whole.explanations())


@pytest.mark.usefixtures("small_parts", "at_once")
def test_a_part_of_which_some_was_lost_is_done_again_and_only_that_is_written(tmp_path: Path, whole: Store) -> None:
    run = make(tmp_path / "run", chunk_size=256)
    (job,) = run.jobs()
    kept = whole.explanations().items[::2]
    run.write(job, 0, kept)
    told: list[int] = []
    engines.explain_run(run, progress=told.append)
    assert same_results(run.explanations(), whole.explanations())
    assert left(run) == []
    assert (told[0], sum(told)) == (len(kept), len(KEYS))


@pytest.mark.usefixtures("small_parts")
def test_parts_that_came_before_a_chunk_failed_are_kept(
    tmp_path: Path, whole: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Answers.of, [0]

    def third_fails(answers: Answers, *given: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise ZeroDivisionError("once")
        return real(answers, *given)

    monkeypatch.setattr(Answers, "of", third_fails)
    run = make(tmp_path / "run", chunk_size=256)
    with pytest.raises(engines.ChunksFailed, match="ZeroDivisionError: once"):
        engines.explain_run(run)
    done = len(run.explanations())
    assert 0 < done < len(KEYS)
    engines.explain_run(make(tmp_path / "run", chunk_size=256, resume=True))
    assert same_results(run.explanations(), whole.explanations())


def test_seconds_are_those_of_the_work_and_not_of_who_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request = ring_source().request(KEYS, Spec("gradient"))
    now = [0.0]
    monkeypatch.setattr(sessions.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(sessions, "UNITS_PER_PART", 60)
    with Session(request) as session:
        for part in session.parts(Chunk(0, KEYS)):
            assert np.allclose([e.seconds for e in part], 0)
            now[0] += 100.0  # the taker writes to a slow disk
