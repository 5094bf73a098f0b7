"""Commands run in this process, as `main` runs them."""

from __future__ import annotations

import json
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from typer.main import get_command

from cf2.cli.commands import app
from cf2.cli.terminal import guarded

COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


def words_of(text: str, between: str | None = None) -> list[str]:
    """A command, or values, written in one line."""
    return text.split(between)


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        assert self.returncode == 0, self.stderr
        return json.loads(self.stdout)

    @property
    def said(self) -> str:
        """What it wrote to stderr, without frames and line breaks."""
        return " ".join(self.stderr.replace("│", " ").split())


def cf2(*words: object, cwd: Path | None = None) -> Done:
    """Run a command and give its exit code and what it wrote."""
    stdout, stderr, code = StringIO(), StringIO(), 0
    with chdir(cwd or Path.cwd()), redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            guarded(partial(app, [str(word) for word in words]))
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, stdout.getvalue(), stderr.getvalue())
