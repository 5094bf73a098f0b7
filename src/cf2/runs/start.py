"""The start of a run: a directory that is free for it, and what is taken back if nothing comes of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cf2.core.whole_files import PARTIAL, writing
from cf2.errors import require
from cf2.runs.lock import LOCK
from cf2.runs.manifest import MANIFEST
from cf2.runs.shards import SHARDS

CONTEXT, TRAINED = "context.json", "trained-{job}.safetensors"


@dataclass
class Start:
    """What a call has made in a run directory; nothing of it stays if the call fails before anything is finished."""

    path: Path
    directories: list[Path] = field(default_factory=list)  # the outermost first
    fresh: bool = False  # whether the run itself is new
    jobs: set[str] = field(default_factory=set)

    def make_directory(self) -> None:
        """Make the directory of the run, and remember which ones were not there."""
        self.directories = [place for place in reversed([self.path, *self.path.parents]) if not place.exists()]
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def take_back(self) -> None:
        """Leave the directory as it was found. What is in it beside a run's own files stays."""
        if self.fresh:
            for name in (MANIFEST, CONTEXT, LOCK, *(TRAINED.format(job=job) for job in self.jobs)):
                with suppress(OSError):
                    (self.path / name).unlink(missing_ok=True)
            with suppress(OSError):
                (self.path / SHARDS).rmdir()
        for place in reversed(self.directories):
            with suppress(OSError):
                place.rmdir()


def refuse_occupied(path: Path, resume: bool) -> None:
    """Refuse a directory that holds something, unless that is a run which is to be resumed."""
    require(not path.exists() or path.is_dir(), "Expected a directory for the run", got=f"the file {str(path)!r}")
    if not path.is_dir():
        return
    is_run = (path / MANIFEST).is_file()
    shards = path / SHARDS
    held = shards.is_dir() and next(shards.iterdir(), None) is not None
    require(
        is_run or not held,
        "Expected an empty or new directory for the run",
        got=f"{str(path)!r}, which holds shards of a run without its {MANIFEST}",
        do=f"Put the {MANIFEST} back, or choose another directory.",
    )
    # A run that was killed before its first manifest leaves these; they hold nothing that was computed.
    ours = {SHARDS, CONTEXT, LOCK}
    foreign = sorted(p.name for p in path.iterdir() if p.name not in ours and not p.name.startswith(PARTIAL))
    if not foreign:
        return
    require(
        is_run and resume,
        "Expected an empty or new directory for the run",
        got=f"{str(path)!r}, which holds {'a run' if is_run else foreign[0]}",
        do="Pass --resume (resume=True) to go on with it, or choose another directory." if is_run else "",
    )
