"""The commands that read a run: scores, a report, a list of runs, a check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cf2.cli import options as o
from cf2.cli.patterns import find_in_run
from cf2.cli.terminal import comparison_table, out, print_json, say, table, tell
from cf2.errors import CF2Error

if TYPE_CHECKING:
    from cf2.runs.check import Check
    from cf2.runs.store import Store

REPORT, RUNS = Path("report.html"), Path("runs")

Sample = Annotated[int, typer.Option(min=0, help="Number of keys whose claims are checked again.")]


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
        claims, verdicts, more = _check_claims(store, sample, checkpoint, data_root, agreed)
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


def _check_claims(
    store: Store, sample: int, checkpoint: Path | None, root: Path | None, trust: bool
) -> tuple[Check, int, list[str]]:
    """The claims of a sample, of how many keys, and what else is wrong with these or with the model and data."""
    from cf2.runs.check import Check
    from cf2.samples.sources import restore

    described: dict[str, Any] = dict(store.manifest["source"])
    if checkpoint is not None:
        described["checkpoint"] = str(checkpoint)
    try:
        source = restore(described, root=root, trust=trust)
        other = store.problems_of_source(source)
        return (Check(), 0, other) if other else store.check_claims(source, sample)
    except CF2Error as error:
        return Check(), 0, [str(error)]
