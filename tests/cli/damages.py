"""Ways to damage a run directory, drawn at random: by name, each takes the run, another run, and what draws."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cf2
from cf2.errors import CF2Error
from cf2.storage import fingerprint

Damage = Callable[[Path, Path, random.Random], Any]
DAMAGES: dict[str, Damage] = {}
HARMLESS = ("leftovers", "file_for_set_aside", "pipe_for_lock", "directory_for_lock")  # to a reader


def damage(function: Damage) -> Damage:
    DAMAGES[function.__name__] = function
    return function


def damage_of_shard(function: Callable[[Path, random.Random], Any]) -> Callable[[Path, random.Random], Any]:
    """A damage of one shard; where there is none left, of a new name."""

    def on_any(run: Path, other: Path, rng: random.Random) -> None:
        (run / "shards").mkdir(exist_ok=True)
        function(_one(run, rng), rng)

    DAMAGES[function.__name__] = on_any
    return function


def _one(run: Path, rng: random.Random) -> Path:
    shards = sorted(p for p in (run / "shards").iterdir() if p.is_file()) if (run / "shards").is_dir() else []
    return rng.choice(shards or [run / "shards" / "cf2-000000.0123456789abcdef.parquet"])


def _read(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""


def _remove(file: Path) -> Path:
    shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)
    return file


def _flip(file: Path, rng: random.Random) -> None:
    content = bytearray(_read(file) or b"0")
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    (_remove(file) if file.is_fifo() else file).write_bytes(bytes(content))  # a pipe would wait for a reader


def _move(shard: Path, name: str) -> None:
    shard.with_name(name).write_bytes(_read(shard))
    shard.unlink(missing_ok=True)


# -- shards ---------------------------------------------------------------------------------------------------


@damage_of_shard
def truncate_shard(shard: Path, rng: random.Random) -> None:
    content = _read(shard)
    shard.write_bytes(content[: rng.randrange(len(content) + 1)][:-1])


@damage_of_shard
def rename_shard_to_another_job(shard: Path, rng: random.Random) -> None:
    job = "random-seed0" if shard.name.startswith("gradient") else "gradient"
    _move(shard, f"{job}-000077.{shard.name.partition('.')[2]}")


@damage_of_shard
def duplicate_shard(shard: Path, rng: random.Random) -> None:
    stem, _, rest = shard.name.partition(".")
    name = f"{stem.rpartition('-')[0]}-{rng.randrange(100, 999):06d}.{rest}"
    shard.with_name(name).write_bytes(_read(shard))


@damage_of_shard
def forget_identity_of_shard(shard: Path, rng: random.Random) -> None:
    """As version 0.2 wrote them before they said whose they are."""
    with suppress(CF2Error):  # another damage was here before
        bare = replace(cf2.load(shard), context={}).save(shard.parent.parent / "bare.parquet")
        bare.rename(shard.with_name(f"gradient-000099.{fingerprint(bare, digits=16)}.parquet"))
        shard.unlink()


@damage_of_shard
def stray_file(shard: Path, rng: random.Random) -> None:
    names = ("notes.txt", "gradient-1.parquet", ".hidden", "gradient-000001.xyz.parquet")
    shard.with_name(rng.choice(names)).touch()


DAMAGES["flip_shard"] = lambda run, other, rng: _flip(_one(run, rng), rng)
REPLACED: dict[str, Callable[[Path], Any]] = {  # what takes the place of a shard
    "delete_shard": lambda shard: None,
    "empty_shard": Path.touch,
    "pipe_for_shard": os.mkfifo,
    "directory_for_shard": Path.mkdir,
    "loop_for_shard": lambda shard: shard.symlink_to(shard),
    "endless_shard": lambda shard: shard.symlink_to("/dev/zero"),
}


def _replaced(make: Callable[[Path], Any]) -> Damage:
    def on_any(run: Path, other: Path, rng: random.Random) -> None:
        (run / "shards").mkdir(exist_ok=True)
        make(_remove(_one(run, rng)))

    return on_any


DAMAGES |= {name: _replaced(make) for name, make in REPLACED.items()}


@damage
def add_foreign_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(other, rng)
    (run / "shards" / shard.name).write_bytes(_read(shard))


DAMAGES |= {
    "replace_by_foreign_shards": lambda run, other, rng: shutil.copytree(other / "shards", _remove(run / "shards")),
    "file_for_shards": lambda run, other, rng: _remove(run / "shards").write_text(""),
    "no_shards": lambda run, other, rng: _remove(run / "shards"),
}


# -- manifest, context, lock ----------------------------------------------------------------------------------


def damages_of(file: str) -> dict[str, Damage]:
    name = f"{file}.json"
    return {
        f"no_{file}": lambda run, other, rng: _remove(run / name),
        f"pipe_for_{file}": lambda run, other, rng: os.mkfifo(_remove(run / name)),
        f"foreign_{file}": lambda run, other, rng: shutil.copy(other / name, _remove(run / name)),
        f"flip_{file}": lambda run, other, rng: _flip(run / name, rng),
        f"directory_for_{file}": lambda run, other, rng: _remove(run / name).mkdir(),
    }


DAMAGES |= damages_of("manifest") | damages_of("context")


@damage
def edit_manifest(run: Path, other: Path, rng: random.Random) -> None:
    try:
        stored = json.loads(_read(run / "manifest.json"))
        name = rng.choice(sorted(stored))
    except (ValueError, TypeError, IndexError):
        return _flip(run / "manifest.json", rng)
    value = stored[name]
    if isinstance(value, list) and value:
        stored[name] = rng.choice([value[:-1], value[::-1] if len(value) > 1 else [], value * 2, []])
    elif isinstance(value, dict) and value:
        stored[name] = {**value, rng.choice(sorted(value)): rng.choice([None, 1, "x", [], {}])}
    else:
        stored[name] = rng.choice([None, -1, "x", [1], {"a": 1}])
    (run / "manifest.json").write_text(json.dumps(stored))
    return None


@damage
def garbage_context(run: Path, other: Path, rng: random.Random) -> None:
    content = rng.choice([b"", b"{", b"[]", b"null", rng.randbytes(50), b"[" * 99_999])
    _remove(run / "context.json").write_bytes(content)


@damage
def leftovers(run: Path, other: Path, rng: random.Random) -> None:
    (run / "partial-4194303-gradient-000009.parquet").write_bytes(b"half")
    _remove(run / ".lock").write_text("4194303\nelsewhere\n")


DAMAGES["directory_for_lock"] = lambda run, other, rng: _remove(run / ".lock").mkdir()
DAMAGES["pipe_for_lock"] = lambda run, other, rng: os.mkfifo(_remove(run / ".lock"))
DAMAGES["file_for_set_aside"] = lambda run, other, rng: _remove(run / "set-aside").write_text("")
