"""Commands written at random: whatever is asked for, the answer is a result or a sentence, never a traceback."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pooch
import pytest
from commands_here import Done, cf2, words_of

OWN = """
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

def ring(n=8):
    at = torch.arange(n)
    ahead = torch.stack([at, (at + 1) % n])
    return Data(x=torch.eye(3)[at % 3], edge_index=torch.cat([ahead, ahead.flip(0)], 1), y=at % 2)

def ok():
    torch.manual_seed(0)
    return GCN(3, 4, 2, 2), ring()

def raises(): return 1 / 0
def leaves(): raise SystemExit(3)
def nothing(): return None
def wrong_size(): return GCN(9, 4, 2, 2), ring()
def no_edges(): return GCN(3, 4, 2, 2), Data(x=torch.ones(4, 3))
def lazy(): return GCN(-1, 4, 2, 2), ring()
number = 3
"""

LONG = "x" * 300
PLACE = words_of("missing|folder|file||ünï 😀|loop|pipe|file/below|~nobody-here/x|/dev/null|/proc/nowhere", "|")
PLACE += ["run", "broken", "model.json", ".", LONG, "\udcff"]
NUMBER = words_of("-1|0|2|99999999999999999999|1e3|0x10|nan||eins|2.5|٣", "|")
NAME = ["nope", "", "ba-shape", "tu:", "tu:NOPE", "planetoid:Nope", "planetoid:../x", "😀", "a:b", "--", LONG]
ID = [*words_of("310-300|a||-5|511,511|9999|511-|0-99999999999|²|test_mask|5,,6|3 - 5|٣", "|"), "1" * 5000]
OWN_NAMES = words_of("|ok:ok|number|raises|leaves|nothing|wrong_size|no_edges|lazy|ök|missing", "|")
FUNCTION = [f"own_fuzz:{name}" for name in OWN_NAMES]
FUNCTION += words_of("own_fuzz.py:ok|:ok|own_fuzz|typo_fuzz:ok|no.such.module:f|..:f|os:getcwd|./own_fuzz.py:ok", "|")
WORD = ["", "nope", "NONE", "😀", "edges,edges", ",", "1", "cpu:99", "cuda", "meta", LONG]
SETTING = [f"k={value}" for value in ("", "0", "-1", "x", "null", "1e999", "2.5", "[1]", "[" * 9999, "1" * 5000, "1e1")]
SETTING += words_of("k|=|lr=NaN|epochs=-3|threshold=7|kind=nope|ünï=1|steps=0|kay=2|effort=nope", "|")

VALUES: dict[str, Sequence[str]] = {
    **dict.fromkeys(("RUN", "--checkpoint", "--data-root"), PLACE),
    "--out": [place for place in PLACE if not place.startswith(("/dev", "/proc"))],
    **dict.fromkeys(("--workers", "--seed", "--seeds", "--target", "--max-units"), NUMBER),
    **dict.fromkeys(("--pictures", "--port", "--sample"), NUMBER),
    **dict.fromkeys(("--epochs", "COUNT"), ("-1", "0", "1e3", "nan", "", "2.5")),
    **dict.fromkeys(("DATASET", "--datasets"), NAME),
    **dict.fromkeys(("--method", "--methods", "--table", "--figure", "--arch"), (*WORD, "cf22", "gem,", "causal")),
    **dict.fromkeys(("--units", "--question", "--level", "--masking", "--output", "--reduce", "--device"), WORD),
    "--engine": ("", "rays", "LOCAL", "😀"),
    "--host": ("", "999.999.1.1", "no such host", "😀", "-1"),
    "--nodes": ID,
    "--data": FUNCTION,
    "--set": SETTING,
    "--no-such-option": ("1",),
}
SPEC_OPTIONS = words_of("checkpoint data-root workers seed target max-units units question level masking output")
SPEC_OPTIONS += ["reduce", "device", "engine"]
# How often it is asked for, a command that would work, the options that may be added, and its flags.
BASES: list[tuple[int, list[str], list[str], list[str]]] = [
    (
        8,
        ["explain", "DATASET=tree-cycles", "--nodes=511", "--method=gradient", "--set=k=2", "--out=new"],
        [f"--{name}" for name in SPEC_OPTIONS],
        ["--json", "--resume", "--search", "--directed", "--no-directed", "--debug"],
    ),
    (
        8,
        ["explain", "--data=own_fuzz:ok", "--nodes=0,3", "--method=gradient", "--set=k=2", "--out=new"],
        ["--target", "--device", "--units", "--output", "--level", "--masking"],
        ["--json", "--resume", "--search", "--directed"],
    ),
    (3, ["evaluate", "RUN=run"], ["--method"], ["--json"]),
    (3, ["check", "RUN=run"], ["--sample", "--checkpoint", "--data-root", "--data"], ["--json", "--trust"]),
    (3, ["report", "RUN=run", "--out=page.html"], ["--pictures"], ["--debug"]),
    (3, ["serve", "RUN=run", "--host=999.999.1.1"], ["--port", "--data"], ["--trust"]),
    (
        3,
        ["train", "DATASET=tree-cycles", "--epochs=1", "--set=hidden=2", "--out=new"],
        ["--arch", "--seed"],
        ["--json"],
    ),
    (1, ["demo", "--nodes=COUNT", "--out=new"], [], ["--json"]),
    (2, ["reproduce", "--out=new", "--table=nope"], ["--datasets", "--methods", "--figure", "--seeds"], ["--resume"]),
    (1, ["datasets"], ["--data-root"], ["--json"]),
    (1, ["methods", "--no-such-option=1"], [], ["--json"]),
    (1, ["bench", "--no-such-option=1"], ["--data-root"], ["--full"]),
]
NEVER_AS_IT_IS = {"serve": "--host", "reproduce": "--table", "demo": "--nodes", "bench": "--no-such-option"}


def invocation(rng: random.Random) -> list[str]:
    """A command with one to three values replaced by others, and perhaps a flag. Those that take long are spoilt."""
    _, (command, *base), more, flags = rng.choices(BASES, weights=[weight for weight, *_ in BASES])[0]
    words = dict(word.partition("=")[::2] for word in base)
    fixed = NEVER_AS_IT_IS.get(command)
    names = [name for name in (*words, *more) if name != fixed] or [fixed or ""]
    for name in rng.sample(names, k=min(len(names), rng.choice((1, 1, 1, 2, 3)))):
        words[name] = rng.choice(VALUES.get(name, ("x",)))
    if command == "demo":
        words["--nodes"] = rng.choice(VALUES["COUNT"])
    given = [part for name, value in words.items() for part in ([name, value] if name.startswith("--") else [value])]
    return [command, *given, *rng.sample(flags, k=rng.choice((0, 0, 1)))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    words = ["explain", "tree-cycles", "--nodes", "511,512", "--method", "gradient", "--set", "k=2"]
    assert cf2(*words, "--out", folder / "run").returncode == 0
    assert cf2("train", "tree-cycles", "--epochs", 1, "--set", "hidden=2", "--out", folder / "model").returncode == 0
    return folder


@pytest.fixture
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a run, a model, a broken run, and names that are no files; and no network."""

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", unreachable)
    monkeypatch.delenv("CF2_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CF2_DEBUG", raising=False)
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    shutil.copytree(finished / "run", tmp_path / "broken")
    (tmp_path / "broken" / "manifest.json").write_text('{"format": 2, "jobs": [1], "keys": 3}')
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("nothing")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "own_fuzz.py").write_text(OWN)
    (tmp_path / "typo_fuzz.py").write_text("def f(:\n")
    return tmp_path


def check(words: list[str], done: Done) -> None:
    assert done.returncode in (0, 1, 2), (words, done.returncode, done.stderr)
    if "--debug" not in words:
        assert "Traceback" not in done.stderr, (words, done.stderr)
    assert "bug in cf2" not in done.said, (words, done.stderr)
    if done.returncode:
        assert done.stderr.strip() or done.stdout.strip(), words
    if "--json" in words and done.stdout:
        json.loads(done.stdout)


@pytest.mark.parametrize(
    ("seeds", "most"), [(range(100), 2), pytest.param(range(1000, 1600), 20, marks=pytest.mark.slow)]
)
def test_commands_at_random_end_in_a_result_or_a_sentence(here: Path, seeds: range, most: int) -> None:
    codes = {0: 0, 1: 0, 2: 0}
    for seed in seeds:
        words = invocation(random.Random(seed))
        done = cf2(*words, cwd=here)
        check(words, done)
        codes[done.returncode] += 1
        for made in ("new", "new.json", "new.safetensors"):
            path = here / made
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    assert min(codes.values()) > most
