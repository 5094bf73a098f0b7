"""What a run was started with: its manifest, whether that is as it was written, and whether a request is the same."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cf2.core.whole_files import digest, digest_json, read_json, write_json
from cf2.errors import CF2Error, require
from cf2.results import files
from cf2.spec import Spec

log = logging.getLogger("cf2")

FORMAT = 2
MANIFEST = "manifest.json"
FIELDS: dict[str, type] = {
    "id": str,  # drawn anew for every run
    "created": str,
    "versions": dict,
    "source": dict,  # the description of model and data, by which they are found again
    "fingerprints": dict,  # of the data and the model that were explained
    "context": str,  # the digest of context.json
    "chunk_size": int,
    "keys": list,
    "jobs": list,  # a Spec each, in the order in which they were added
    "trained": dict,  # by job: the digest of what was trained for it
}
AGAIN = "Explain again into a new directory."


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest of the run at `path` at once; it holds a digest of itself."""
    write_json(path / MANIFEST, {**manifest, "digest": digest_json(manifest)})


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the run at `path`, if it is one of ours and as it was written."""
    file = path / MANIFEST
    manifest = read_json(file)
    is_ours = isinstance(manifest, dict) and manifest.get("format") == FORMAT and "jobs" in manifest
    require(
        is_ours,
        f"Expected {file} to have format {FORMAT}",
        got=manifest.get("format") if isinstance(manifest, dict) else type(manifest).__name__,
        do=f"It was made by another version of cf2. {AGAIN}",
    )
    require(
        "id" in manifest and "digest" in manifest,
        f"Expected {file} to say which run it is of, so that its shards can be told from others",
        got="none of that",
        do=f"It was made before version 0.2 was finished. {AGAIN}",
    )
    require(
        manifest.pop("digest") == digest_json(manifest),
        f"Expected {file} as it was written",
        got="one that was changed or damaged since",
        do=f"Put the old one back. If there is none: {AGAIN.lower()}",
    )
    wrong = _wrong_field(manifest)
    require(not wrong, f"Expected {file} to describe a run", got=f"another {wrong}", do=AGAIN)
    return dict(manifest)


def _wrong_field(manifest: Mapping[str, Any]) -> str:
    """The name of a field that is not what it should be, if there is one."""
    for name, kind in FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            return f"`{name}`"
    keys, jobs = manifest["keys"], manifest["jobs"]
    if not keys or not all(_is_key(key) for key in keys) or len({files.as_key(key) for key in keys}) != len(keys):
        return "`keys`"
    if isinstance(manifest["chunk_size"], bool) or manifest["chunk_size"] < 1:
        return "`chunk_size`"
    if not jobs or not all(isinstance(job, dict) for job in jobs):
        return "`jobs`"
    names = [Spec.from_json(job).name for job in jobs]
    return "" if len(set(names)) == len(names) else "`jobs`"


def _is_key(key: Any) -> bool:
    numbers = key if isinstance(key, list) else [key]
    return bool(numbers) and all(type(number) is int for number in numbers)


def refuse_changes(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise an error that says what differs, if anything does."""
    before, now = dict(_flat(old)), dict(_flat(new))
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        says = "; ".join(
            f"{name} was {in_short(before.get(name))}, is {in_short(now.get(name))}" for name in changed[:5]
        )
        raise CF2Error(
            f"Expected the same choices as the run in {str(path)!r} was started with",
            got=f"others: {says}",
            do="Repeat the first command to resume, or choose another directory.",
        )


def warn_of_versions(manifest: Mapping[str, Any]) -> None:
    """Say in the log which libraries are not those that the run was started with."""
    before, now = manifest.get("versions", {}), versions()
    changed = [f"{name} {before.get(name)} → {now[name]}" for name in now if before.get(name) != now[name]]
    if changed:
        log.warning("The run was started with other versions (%s); its parts may differ.", ", ".join(changed))


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{name}.")
        else:
            yield prefix + name, item


def in_short(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, list) and len(value) > 6:
        return f"{len(value)} keys from {value[0]} to {value[-1]} ({digest(json.dumps(value).encode())})"
    return json.dumps(value, default=str)


def as_json(value: dict[str, Any]) -> dict[str, Any]:
    """As it will be when it is read back."""
    stored: dict[str, Any] = json.loads(json.dumps(value))
    return stored


def versions() -> dict[str, str]:
    """What made the results."""
    import numpy
    import torch
    import torch_geometric

    from cf2 import __version__

    names = {"cf2": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    return names | {"torch_geometric": torch_geometric.__version__, "numpy": numpy.__version__}
