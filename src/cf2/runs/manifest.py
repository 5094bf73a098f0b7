"""What a run was started with, and whether it still is the same."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cf2.errors import CF2Error
from cf2.runs.whole_files import digest

log = logging.getLogger("cf2")


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
