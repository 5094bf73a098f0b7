"""Runs from strangers, and runs whose model has changed: refused in one sentence, with nothing read, moved or mixed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ring import contents, make, ring_source, spec_of

from cf2.errors import CF2Error
from cf2.runs import engines
from cf2.runs.comparison import list_runs
from cf2.runs.store import Store, digest_of

pytestmark = pytest.mark.usefixtures("at_once")
QUICK = spec_of(method="gradient", settings={"k": 2})


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which some keys are finished."""
    base = tmp_path_factory.mktemp("runs")
    run, whole = make(base / "run", spec=QUICK), make(base / "all", spec=QUICK)
    engines.explain_run(whole)
    run.write(run.jobs()[0], 0, whole.explanations().items[:6])
    return run.path


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "runs" / "run"))


def rewrite(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a manifest as a careful forger would: its digest is right."""
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["digest"]
    change(manifest)
    digest = digest_of(manifest)
    (run / "manifest.json").write_text(json.dumps({**manifest, "digest": digest}))


# -- the model has changed ------------------------------------------------------------------------------------


def test_a_model_with_another_forward_and_the_same_weights_is_refused(run: Path) -> None:
    source = ring_source()
    plain = source.model.forward
    before = source.fingerprints()
    source.model.forward = lambda *given, **named: torch.sin(7 * plain(*given, **named))
    assert source.fingerprints() == before
    shards = sorted((run / "shards").iterdir())
    with pytest.raises(CF2Error, match=r"Expected the model of the run in .* with other outputs .*has changed"):
        make(run, source=source, spec=QUICK, resume=True)
    assert sorted((run / "shards").iterdir()) == shards


# -- links ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shards", "set-aside", "context.json", "manifest.json", ".lock", "patterns.json"])
def test_a_link_in_a_run_is_not_followed(run: Path, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine"
    if (run / name).exists():
        shutil.move(run / name, mine)
    else:
        mine.mkdir()
        (mine / "letter.txt").write_text("dear")
    before = contents(tmp_path)
    (run / name).symlink_to(mine)
    for use in (lambda: Store.open(run), lambda: make(run, spec=QUICK, resume=True)):
        with pytest.raises(CF2Error, match=f"without links.*{name}"):
            use()
    (run / name).unlink()
    assert contents(tmp_path) == before


def test_a_shard_that_is_a_link_is_not_used(run: Path, tmp_path: Path) -> None:
    (shard,) = (run / "shards").iterdir()
    shutil.move(shard, tmp_path / shard.name)
    shard.symlink_to(tmp_path / shard.name)
    assert list(Store.open(run).survey().refused.values()) == ["is a link"]


# -- nonsense with right digests ------------------------------------------------------------------------------

CONTEXTS: list[Any] = [[], 3, None, {"class_names": 3}, {"class_names": [1]}, {"graphs": []}, {"graphs": {"0": 3}}]
CONTEXTS += [{"truth": [1]}, {"dataset": {}}, {"graphs": {"0": {"labels": 5}}}, {"atoms": "CN"}]


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_a_context_that_is_none_is_refused(run: Path, context: Any) -> None:
    content = json.dumps(context).encode()
    (run / "context.json").write_bytes(content)
    rewrite(run, lambda manifest: manifest.update(context=digest_of(content)))
    with pytest.raises(CF2Error, match="to say what its explanations are about"):
        Store.open(run).explanations()


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no key": lambda m: m.update(keys=[]),
    "keys of words": lambda m: m.update(keys="abc"),
    "a key twice": lambda m: m.update(keys=[1, 1]),
    "a chunk of nothing": lambda m: m.update(chunk_size=0),
    "no job": lambda m: m.update(jobs=[]),
    "a job of a number": lambda m: m.update(jobs=[3]),
    "a number as id": lambda m: m.update(id=3),
    "kind": lambda m: m["source"].update(kind=["dataset"]),
    "function": lambda m: m["source"].update(kind="function", function={}),
    "model": lambda m: m["fingerprints"].update(model=[]),
    "trained": lambda m: m["trained"].update(x={}),
    "versions": lambda m: m["versions"].update(cf2=[]),
    "one_hot": lambda m: m["jobs"][0].update(one_hot="0-99999999999"),
    "sizes": lambda m: m["jobs"][0].update(sizes=[[0, 10**30]]),
    "alternatives": lambda m: m["jobs"][0].update(alternatives=10**12),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_manifest_is_refused_and_the_list_of_runs_goes_on(run: Path, begun: Path, name: str) -> None:
    shutil.copytree(begun, run.with_name("good"))
    rewrite(run, FORGED[name])
    with pytest.raises(CF2Error, match=r"^Expected "):
        Store.open(run)
    rows = {Path(row["run"]).name: row for row in list_runs(run.parent)}
    assert rows["good"]["finished"] == 6
    assert rows["run"]["problem"].startswith("Expected ")
