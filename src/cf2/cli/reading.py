"""The commands that read runs: `cf2 runs`, `cf2 evaluate` and `cf2 report`."""

from __future__ import annotations

from pathlib import Path

from cf2.cli import options as o
from cf2.cli.terminal import COMPARED, compared, out, print_json, say, table, tell

REPORT, RUNS = Path("report.html"), Path("runs")


def evaluate(run: o.RunPath, method: o.EvaluateMethod = None, as_json: o.Json = False) -> None:
    """Score a run: PN, PS, F_NS, size, and accuracy against the truth where it is known.

    Example: cf2 evaluate runs/first --json
    """
    from cf2.cli import runs
    from cf2.runs.directory import open_run

    rows = runs.summaries(open_run(run), method)
    if as_json:
        print_json(rows[0] | ({"methods": rows} if len(rows) > 1 else {}))
        return
    say(runs.rules_in_words(rows))
    out.print(table(f"{run}, percent", COMPARED, [compared(row) for row in rows if row["n"]]))
    if said := runs.unfinished(rows):
        out.print(said, soft_wrap=True, highlight=False)


def report(
    run: o.RunPath,
    path: o.ReportPath = REPORT,
    pictures: o.Pictures = 60,
    patterns: o.Patterns = False,
    trust: o.Trust = False,
) -> None:
    """Write one self-contained HTML page about a run.

    Example: cf2 report runs/first -o report.html
    """
    from cf2.cli import runs

    written, said = runs.report(run, path, pictures, patterns, trust)
    out.print(f"The report is at {written.resolve()}", soft_wrap=True, highlight=False)
    if said:
        tell(said)


def list_runs(directory: o.RunsPath = RUNS, as_json: o.Json = False) -> None:
    """List the runs in a directory: what each explains, by which methods, and how far it is.

    Example: cf2 runs
    """
    from cf2.cli import runs

    rows = runs.list_runs(directory)
    if as_json:
        print_json(rows)
        return
    good = [row for row in rows if "problem" not in row]
    cells = [[r["run"], r["data"], ", ".join(r["rows"]), f"{r['finished']:,} of {r['asked']:,}"] for r in good]
    out.print(table(f"Runs in {directory}", ("run", "data", "by", "finished"), cells))
    for row in rows:
        if "problem" in row:
            tell(f"{row['run']}: {row['problem']}")
