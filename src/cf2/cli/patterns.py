"""`cf2 patterns`: what the answers of each class of a run share, tested on instances that were not used to find it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cf2.cli import options as o
from cf2.cli.terminal import out, percent, print_json, table, tell

if TYPE_CHECKING:
    from cf2.patterns.summary import ClassSummary, FoundPattern, Patterns

Count = Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of patterns per class.")]
HeldOut = Annotated[float, typer.Option(min=0, max=0.95, help="Share of keys that is held out for testing.")]
SplitSeed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed that selects the held-out keys.")]
Most = Annotated[int, typer.Option(min=1, help="Maximum number of additional keys to test on.")]
Labels = Annotated[str, typer.Option(help="Node labels: auto, degree, class or none.")]
Counted = Annotated[bool, typer.Option("--counted", help="Only count in the explained graphs; do not run the model.")]
Rules = Annotated[bool, typer.Option("--rules", help="Find edit rules of counterfactuals instead; runs the model.")]
UNTRUSTED = "The patterns were only counted, because testing runs the function of the run. Add --trust to test."
COLUMNS = ("pattern", "answers", "cover", "prec.", "nec.", "chance", "suff.", "one")


def patterns(
    run: o.RunPath,
    method: o.EvaluateMethod = None,
    count: Count = 5,
    held_out: HeldOut = 0.5,
    seed: SplitSeed = 0,
    most: Most = 2000,
    labels: Labels = "auto",
    counted: Counted = False,
    rules: Rules = False,
    checkpoint: o.Checkpoint = None,
    data_root: o.Root = None,
    trust: o.Trust = False,
    data: o.SameData = None,
    as_json: o.Json = False,
) -> None:
    """Find the patterns that the answers of each class share, and test them on other instances.

    The patterns are stored in the run; `cf2 report` and `cf2 serve` show them.

    Example: cf2 patterns runs/first --count 3
    """
    settings = {"count": count, "held_out": held_out, "seed": seed, "most": most, "labels": labels}
    found = find_in_run(run, method, settings, rules, counted, checkpoint, data_root, trust, data)
    kept = found.save(run / found.file_name)
    if as_json:
        print_json({"run": str(run), **found.to_dict()})
        return
    from cf2.patterns.summary import Patterns

    if isinstance(found, Patterns):
        _show(found)
    else:
        out.print(str(found), soft_wrap=True, highlight=False, markup=False)
    tell(f"The result is stored in {kept}; cf2 report and cf2 serve show it.")


def _show(found: Patterns) -> None:
    how = "tested" if any(row.necessity is not None for row in found) else "counted"
    out.print(
        f"Found in {found.about['found_on']} explanations, {how} on other predictions (percent):", highlight=False
    )
    for prediction in found.classes():
        rows = [[row.pattern.text, f"{row.support} of {row.answers}", *_shares(row)] for row in found.of(prediction)]
        tested = found.about["tested"].get(prediction, 0)
        out.print(table(f"{found.name(prediction)}, {how} on {tested}", COLUMNS, rows))
    for note in found.about["notes"]:
        tell(note)


def _shares(row: FoundPattern) -> list[str]:
    names = ("coverage", "precision", "necessity", "chance", "sufficiency", "sufficiency_one")
    return [percent(None if (e := getattr(row, name)) is None else e.value) for name in names]


def find_in_run(
    path: Path,
    method: str | None = None,
    settings: dict[str, Any] | None = None,
    rules: bool = False,
    counted: bool = False,
    checkpoint: Path | None = None,
    root: Path | None = None,
    trust: bool = False,
    data: str | None = None,
) -> ClassSummary:
    """The patterns, or the edit rules, of a run by one method, the first if none is named.

    Patterns are only counted where the model may not be run; a model and data other than those of the run are refused.
    """
    from cf2.errors import CF2Error
    from cf2.runs.store import Store
    from cf2.samples.sources import restore, trusted

    run, question = Store.open(path), "counterfactual" if rules else None
    described = dict(run.manifest["source"])
    agreed = trusted(described, trust=trust, data=data)
    found = run.explanations(method or run.methods()[0], question=question)
    if not rules and (counted or (described.get("kind") == "function" and not agreed)):
        if not counted:
            tell(UNTRUSTED)
        return found.patterns(**settings or {})
    if checkpoint is not None:
        described["checkpoint"] = str(checkpoint)
    source = restore(described, root=root, trust=agreed)
    if other := run.problems_of_source(source):
        raise CF2Error("Expected the model and data of the run", got="others", do=" ".join(other))
    targets = source.targets(run.job(found[0].method, found[0].seed, question))
    return (found.rules if rules else found.patterns)(source.model, targets, **settings or {})
