"""The commands that read a run: scores, a report, patterns, a list of runs, a check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cf2.cli import options as o
from cf2.cli.terminal import comparison_table, out, percent, print_json, say, table, tell
from cf2.errors import CF2Error

if TYPE_CHECKING:
    from cf2.patterns.summary import ClassSummary, FoundPattern, Patterns
    from cf2.runs.source import ModelAndData
    from cf2.runs.store import Store

REPORT, RUNS = Path("report.html"), Path("runs")

Count = Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of patterns per class.")]
HeldOut = Annotated[float, typer.Option(min=0, max=0.95, help="Share of keys that is held out for testing.")]
SplitSeed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed that selects the held-out keys.")]
Most = Annotated[int, typer.Option(min=1, help="Maximum number of additional keys to test on.")]
Labels = Annotated[str, typer.Option(help="Node labels: auto, degree, class or none.")]
Rules = Annotated[bool, typer.Option("--rules", help="Find edit rules of counterfactuals instead; runs the model.")]
Sample = Annotated[int, typer.Option(min=0, help="Number of keys whose claims are checked again.")]
UNTRUSTED = "The patterns were only counted, because testing runs the function of the run. Add --trust to test."
COLUMNS = ("pattern", "answers", "cover", "prec.", "nec.", "chance", "suff.", "one")


def evaluate(run: o.RunPath, method: o.EvaluateMethod = None, as_json: o.Json = False) -> None:
    """Score a run: PN, PS, F_NS, size, and accuracy against the ground truth if it is known.

    Example: cf2 evaluate runs/first --json
    """
    from cf2.runs.comparison import rules_in_words, summaries, unfinished
    from cf2.runs.store import Store

    rows = summaries(Store.open(run), method)
    if as_json:
        print_json(rows[0] | ({"methods": rows} if len(rows) > 1 else {}))
        return
    say(rules_in_words(rows))
    out.print(comparison_table(f"{run}, percent", [row for row in rows if row["n"]]))
    say(unfinished(rows))


def report(
    run: o.RunPath,
    path: o.ReportPath = REPORT,
    pictures: o.Pictures = 60,
    patterns: o.Patterns = False,
    trust: o.Trust = False,
) -> None:
    """Write a self-contained HTML report about a run.

    Example: cf2 report runs/first -o report.html
    """
    from cf2.patterns.edit_rules import EditRules
    from cf2.patterns.summary import Patterns
    from cf2.report.html import write_report
    from cf2.runs.comparison import unfinished
    from cf2.runs.store import Store
    from cf2.storage import check_place

    check_place(path)
    store = Store.open(run)
    found = {row: store.explanations(jobs[0].method, question=jobs[0].question) for row, jobs in store.rows().items()}
    if patterns:
        find_in_run(run, trust=trust).save(run / Patterns.file_name)
    context = store.context()
    written = write_report(
        list(found.values()),
        path,
        pictures=pictures,
        patterns=Patterns.of_run(run, context),
        rules=EditRules.of_run(run, context),
    )
    say(f"The report is at {written.resolve()}")
    tell(unfinished([{**given.context, "label": row} for row, given in found.items()]))


def patterns(
    run: o.RunPath,
    method: o.EvaluateMethod = None,
    count: Count = 5,
    held_out: HeldOut = 0.5,
    seed: SplitSeed = 0,
    most: Most = 2000,
    labels: Labels = "auto",
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
    found = find_in_run(run, method, settings, rules, checkpoint, data_root, trust, data)
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
    checkpoint: Path | None = None,
    root: Path | None = None,
    trust: bool = False,
    data: str | None = None,
) -> ClassSummary:
    """The patterns, or the edit rules, of a run by one method, the first if none is named.

    Patterns are only counted where the model may not be run; a model and data other than those of the run are refused.
    """
    from cf2.runs.store import Store
    from cf2.samples.sources import trusted

    run, question = Store.open(path), "counterfactual" if rules else None
    agreed = trusted(run.manifest["source"], trust=trust, data=data)
    found = run.explanations(method or run.methods()[0], question=question)
    if not rules and run.manifest["source"].get("kind") == "function" and not agreed:
        tell(UNTRUSTED)
        return found.patterns(**settings or {})
    source = source_of(run, checkpoint, root, agreed)
    targets = source.targets(run.job(found[0].method, found[0].seed, question))
    return (found.rules if rules else found.patterns)(source.model, targets, **settings or {})


def list_runs(directory: o.RunsPath = RUNS, as_json: o.Json = False) -> None:
    """List the runs in a directory with their data, methods and progress.

    Example: cf2 runs
    """
    from cf2.runs.comparison import list_runs as list_all

    rows = list_all(directory)
    if as_json:
        print_json(rows)
        return
    good = [row for row in rows if "problem" not in row]
    cells = [[r["run"], r["data"], ", ".join(r["rows"]), f"{r['finished']:,} of {r['asked']:,}"] for r in good]
    out.print(table(f"Runs in {directory}", ("run", "data", "by", "finished"), cells))
    for row in rows:
        if "problem" in row:
            tell(f"{row['run']}: {row['problem']}")


def check(
    run: o.RunPath,
    sample: Sample = 20,
    checkpoint: o.Checkpoint = None,
    data_root: o.Root = None,
    trust: o.Trust = False,
    data: o.SameData = None,
    as_json: o.Json = False,
) -> None:
    """Check the files, keys, model, data and every claim of a sample of a run. Exits with 1 if there is a problem.

    Example: cf2 check runs/first --sample 50
    """
    from cf2.runs.check import Check
    from cf2.runs.store import Store
    from cf2.samples.sources import trusted

    store = Store.open(run)
    agreed = trusted(store.manifest["source"], trust=trust, data=data)
    problems, verdicts, unchecked, claims = store.problems_of_files(), 0, "", Check()
    if sample and store.manifest["source"].get("kind") == "function" and not agreed:
        unchecked = "No verdict was recomputed, because that runs the function of the run. Add --trust to recompute."
    elif sample:
        try:
            claims, verdicts, more = store.check_claims(source_of(store, checkpoint, data_root, agreed), sample)
        except CF2Error as error:
            more = [str(error)]
        problems += [*more, *map(str, claims.false)]
    counts = store.finished()
    if as_json:
        result = {"run": str(run), "good": not problems, "problems": problems}
        methods = [row._asdict() for row in counts]
        counts_of = {claim: count._asdict() for claim, count in claims.claims.items()}
        print_json({**result, "methods": methods, "verdicts": verdicts, "claims": counts_of, "unchecked": unchecked})
    else:
        for row in counts:
            say(f"{row.method}: {row.finished:,} of {row.asked:,} finished")
        say(f"{verdicts} verdicts recomputed")
        say(repr(replace(claims, false=[])) if verdicts else "")  # what is false comes below
        tell(unchecked)
        good = "No problems found." if verdicts else "No problems found in the files."
        for line in (*problems, f"{len(problems)} problems found." if problems else good):
            say(line)
    if problems:
        raise typer.Exit(1)


def source_of(run: Store, checkpoint: Path | None, root: Path | None, trust: bool) -> ModelAndData:
    """The model and data of a run, with the model saved at `checkpoint` if that has moved; others are refused."""
    from cf2.samples.sources import restore

    moved = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    source = restore({**run.manifest["source"], **moved}, root=root, trust=trust)
    if other := run.problems_of_source(source):
        raise CF2Error("Expected the model and data of the run", got="others", do=" ".join(other))
    return source
