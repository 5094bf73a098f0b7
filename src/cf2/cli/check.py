"""`cf2 check`: whether a run is whole and true."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cf2.cli import options as o
from cf2.cli.terminal import out, print_json, tell
from cf2.errors import CF2Error

if TYPE_CHECKING:
    from cf2.runs.directory import Run

Sample = Annotated[int, typer.Option(min=0, help="How many verdicts to compute again.")]


def check(
    run: o.RunPath,
    sample: Sample = 20,
    checkpoint: o.Checkpoint = None,
    data_root: o.Root = None,
    trust: o.Trust = False,
    data: o.SameData = None,
    as_json: o.Json = False,
) -> None:
    """Check a run: files, keys, model and data, and a sample of its verdicts. Exit code 1 if something is wrong.

    Example: cf2 check runs/first --sample 50
    """
    from cf2.paper.sources import trusted
    from cf2.runs.check import problems_of_files
    from cf2.runs.directory import open_run

    opened = open_run(run)
    agreed = trusted(opened.manifest["source"], trust=trust, data=data)
    problems = problems_of_files(opened)
    again: dict[str, Any] = {"verdicts": 0, "unchecked": ""}
    if sample and opened.manifest["source"].get("kind") == "function" and not agreed:
        again["unchecked"] = "No verdict was computed again: that runs the function of the run. Add --trust to do so."
    elif sample:
        again["verdicts"], more = _again(opened, sample, checkpoint, data_root, agreed)
        problems += more
    counts = [one._asdict() for one in opened.finished()]
    if as_json:
        print_json({"run": str(run), "good": not problems, "problems": problems, "methods": counts, **again})
    else:
        _show(problems, counts, again)
    if problems:
        raise typer.Exit(1)


def _again(run: Run, sample: int, checkpoint: Path | None, root: Path | None, trust: bool) -> tuple[int, list[str]]:
    """How many verdicts were computed again, and what is wrong with them or with the model and data."""
    from cf2.paper.sources import restore
    from cf2.runs.check import problems_of_source, problems_of_verdicts

    described = dict(run.manifest["source"])
    if checkpoint is not None:
        described["checkpoint"] = str(checkpoint)
    try:
        source = restore(described, root=root, trust=trust)
        other = problems_of_source(run, source)
        return (0, other) if other else problems_of_verdicts(run, source, sample)
    except CF2Error as error:
        return 0, [str(error)]


def _show(problems: list[str], counts: list[dict[str, Any]], again: dict[str, Any]) -> None:
    for one in counts:
        out.print(f"{one['method']}: {one['finished']:,} of {one['asked']:,} finished", highlight=False)
    out.print(f"{again['verdicts']} verdicts computed again", highlight=False)
    if again["unchecked"]:
        tell(again["unchecked"])
    for problem in problems:
        out.print(problem, soft_wrap=True, highlight=False, markup=False)
    good = "Nothing is wrong." if again["verdicts"] else "Nothing is wrong with its files."
    out.print(good if not problems else f"{len(problems)} things are wrong.", highlight=False)
