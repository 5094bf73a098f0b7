"""Ways to damage a run directory, drawn at random."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path, Path, random.Random], Any]


def _shards(run: Path) -> list[Path]:
    place = run / "shards"
    return sorted(p for p in place.iterdir() if p.is_file()) if place.is_dir() else []


def _one(run: Path, rng: random.Random) -> Path:
    """A shard; where there is none left, a new name."""
    return rng.choice(_shards(run) or [run / "shards" / "cf2-000000.0123456789abcdef.parquet"])


def _replace(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def _read(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)


def _flip(file: Path, rng: random.Random) -> None:
    content = bytearray(_read(file) or b"0")
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    _replace(file, bytes(content))


def _number(shard: Path, number: int) -> Path:
    stem, _, rest = shard.name.partition(".")
    return shard.with_name(f"{stem.rpartition('-')[0]}-{number:06d}.{rest}")


# -- shards ---------------------------------------------------------------------------------------------------


def truncate_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    content = _read(shard)
    _replace(shard, content[: rng.randrange(len(content) + 1)][:-1])


def flip_shard(run: Path, other: Path, rng: random.Random) -> None:
    _flip(_one(run, rng), rng)


def empty_shard(run: Path, other: Path, rng: random.Random) -> None:
    _replace(_one(run, rng), b"")


def lengthen_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    _replace(shard, _read(shard) + rng.randbytes(rng.randrange(1, 99)))


def delete_shard(run: Path, other: Path, rng: random.Random) -> None:
    _one(run, rng).unlink(missing_ok=True)


def rename_shard_to_another_digest(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    _replace(shard.with_name(f"{shard.name.partition('.')[0]}.{rng.randbytes(8).hex()}.parquet"), _read(shard))
    shard.unlink(missing_ok=True)


def rename_shard_to_another_job(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    job = "random-seed0" if shard.name.startswith("gradient") else "gradient"
    _replace(shard.with_name(f"{job}-000077.{shard.name.partition('.')[2]}"), _read(shard))
    shard.unlink(missing_ok=True)


def swap_shards(run: Path, other: Path, rng: random.Random) -> None:
    one, two = _one(run, rng), _one(run, rng)
    mine, theirs = _read(one), _read(two)
    _replace(one, theirs)
    _replace(two, mine)
    if one == two:
        _flip(one, rng)


def duplicate_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    _replace(_number(shard, rng.randrange(100, 999)), _read(shard))


def add_foreign_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(other, rng)
    _replace(run / "shards" / shard.name, _read(shard))


def replace_by_foreign_shards(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "shards")
    shutil.copytree(other / "shards", run / "shards")


def pipe_for_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    (run / "shards").mkdir(exist_ok=True)
    shard.unlink(missing_ok=True)
    os.mkfifo(shard)


def directory_for_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    shard.unlink(missing_ok=True)
    shard.mkdir(parents=True, exist_ok=True)


def loop_for_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    (run / "shards").mkdir(exist_ok=True)
    shard.unlink(missing_ok=True)
    shard.symlink_to(shard)


def endless_shard(run: Path, other: Path, rng: random.Random) -> None:
    shard = _one(run, rng)
    (run / "shards").mkdir(exist_ok=True)
    shard.unlink(missing_ok=True)
    shard.symlink_to("/dev/zero")


def stray_file(run: Path, other: Path, rng: random.Random) -> None:
    (run / "shards").mkdir(exist_ok=True)
    (run / "shards" / rng.choice(["notes.txt", "gradient-1.parquet", ".hidden", "gradient-000001.xyz.parquet"])).touch()


def file_for_shards(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "shards")
    (run / "shards").write_text("")


def no_shards(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "shards")


# -- manifest -------------------------------------------------------------------------------------------------


def no_manifest(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "manifest.json")


def flip_manifest(run: Path, other: Path, rng: random.Random) -> None:
    _flip(run / "manifest.json", rng)


def truncate_manifest(run: Path, other: Path, rng: random.Random) -> None:
    content = _read(run / "manifest.json")
    _replace(run / "manifest.json", content[: rng.randrange(max(1, len(content) - 1))])


def foreign_manifest(run: Path, other: Path, rng: random.Random) -> None:
    shutil.copy(other / "manifest.json", run / "manifest.json")


def edit_manifest(run: Path, other: Path, rng: random.Random) -> None:
    try:
        stored = json.loads(_read(run / "manifest.json"))
        name = rng.choice(sorted(stored))
    except (ValueError, TypeError, IndexError):
        return flip_manifest(run, other, rng)
    value = stored[name]
    if isinstance(value, list) and value:
        stored[name] = rng.choice([value[:-1], value[::-1] if len(value) > 1 else [], value * 2, []])
    elif isinstance(value, dict) and value:
        stored[name] = {**value, rng.choice(sorted(value)): rng.choice([None, 1, "x", [], {}])}
    else:
        stored[name] = rng.choice([None, -1, "x", [1], {"a": 1}])
    (run / "manifest.json").write_text(json.dumps(stored))
    return None


def pipe_for_manifest(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "manifest.json")
    os.mkfifo(run / "manifest.json")


# -- beside them ----------------------------------------------------------------------------------------------


def garbage_context(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "context.json")
    (run / "context.json").write_bytes(rng.choice([b"", b"{", b"[]", b"null", rng.randbytes(50), b"[" * 99_999]))


def edit_context(run: Path, other: Path, rng: random.Random) -> None:
    content = _read(run / "context.json")
    _remove(run / "context.json")
    (run / "context.json").write_bytes(content.replace(b"51", b"52") or b"{}")


def foreign_context(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "context.json")
    shutil.copy(other / "context.json", run / "context.json")


def no_context(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "context.json")


def pipe_for_context(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "context.json")
    os.mkfifo(run / "context.json")


def pipe_for_lock(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / ".lock")
    os.mkfifo(run / ".lock")


def leftovers(run: Path, other: Path, rng: random.Random) -> None:
    (run / "partial-4194303-gradient-000009.parquet").write_bytes(b"half")
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").write_text("4194303\nelsewhere\n")


def file_for_set_aside(run: Path, other: Path, rng: random.Random) -> None:
    _remove(run / "set-aside")
    (run / "set-aside").write_text("")


HARMLESS: list[Damage] = [leftovers, file_for_set_aside, pipe_for_lock]  # to a reader
DAMAGES: list[Damage] = [
    truncate_shard,
    flip_shard,
    empty_shard,
    lengthen_shard,
    delete_shard,
    rename_shard_to_another_digest,
    rename_shard_to_another_job,
    swap_shards,
    duplicate_shard,
    add_foreign_shard,
    replace_by_foreign_shards,
    pipe_for_shard,
    directory_for_shard,
    loop_for_shard,
    endless_shard,
    stray_file,
    file_for_shards,
    no_shards,
    no_manifest,
    flip_manifest,
    truncate_manifest,
    foreign_manifest,
    edit_manifest,
    pipe_for_manifest,
    garbage_context,
    edit_context,
    foreign_context,
    no_context,
    pipe_for_context,
    *HARMLESS,
]
