"""From what is asked on the command line to a finished run, and from a run to the rows of a table."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cf2.cli import options as o
from cf2.cli.patterns import find_in_run
from cf2.cli.terminal import COMPARED, compared, out, print_json, say, table, tell
from cf2.errors import CF2Error, require
from cf2.methods import registry
from cf2.options import Key, Spec
from cf2.patterns.edit_rules import EditRules
from cf2.patterns.summary import Patterns
from cf2.report.html import write_report
from cf2.results import metrics
from cf2.runs import engines
from cf2.runs.source import ModelAndData
from cf2.runs.store import MANIFEST, OF_EDITS, Finished, Run, create_run, open_run, partial_sentence
from cf2.samples.sources import from_dataset, from_function
from cf2.sets.search import Search
from cf2.storage import check_place

if TYPE_CHECKING:
    from cf2.runs.store import Run

# -- runs ------------------------------------------------------------------------------------------------


COUNTERFACTUAL = "counterfactual"
MAKE_ONE = "Make one with: cf2 explain ba-shapes --nodes 300-310"


def find_source(dataset: str | None, data: str | None, checkpoint: Path | None, root: Path | None) -> ModelAndData:
    """A data set with its model, or what the user's own function returns."""
    if dataset is not None:
        return from_dataset(dataset, checkpoint=checkpoint, root=root)
    assert data is not None
    return from_function(data)


def make_specs(
    methods: Sequence[str],
    seeds: Sequence[int | None],
    questions: Sequence[str],
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
) -> list[Spec]:
    """One Spec per method, seed and question, each with the settings that its method knows.

    A setting that none knows is an error. Of several questions, only the counterfactual is given what is about edits.
    """
    searching = {f.name for f in fields(Search)} if options.get("search") else set()
    known = {name: {f.name for f in fields(registry.get(name).settings)} | searching for name in methods}
    for name in settings:
        if not any(name in own for own in known.values()):
            registry.get(methods[0]).make_settings({name: None})
    plain = {name: value for name, value in options.items() if name not in OF_EDITS}
    return [
        Spec(
            **(options if question == COUNTERFACTUAL or COUNTERFACTUAL not in questions else plain),
            method=method,
            seed=seed,
            question=question,  # type: ignore[arg-type]  # a Spec refuses others
            settings=_own(settings, known[method]),
        )
        for method in methods
        for question in questions
        for seed in seeds
    ]


def _own(settings: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in known}


def explain(
    path: Path,
    source: ModelAndData,
    specs: Sequence[Spec],
    *,
    keys: Sequence[Key] | None,
    resume: bool,
    own_sizes: bool = False,
    engine: str,
    workers: int | None,
    address: str | None,
    progress: Callable[[int], None],
) -> Run:
    """Do what is asked for, or what is left of it; what is finished is on the disk within seconds.

    What can be checked of all methods is checked before the first of them starts. Methods that search come first:
    those that only rank then choose as many units, unless they are given sizes of their own.
    """
    engines.check(engine, workers)
    explained = source.targets(specs[0]).check(source.keys(specs[0]) if keys is None else keys)
    for spec in specs:
        source.request(explained, spec)
        source.check_needs(spec, explained)
    run = None
    for spec in sorted(specs, key=lambda one: not _searches(one)):
        if run is not None and not own_sizes:
            spec = _of_same_size(run, spec)
        run = create_run(path, source, spec, keys=explained, resume=resume or run is not None)
        job = run.job(spec.method, spec.seed, spec.question)
        engines.explain_run(run, job, engine=engine, workers=workers, address=address, progress=progress)
    assert run is not None
    return run


def _searches(spec: Spec) -> bool:
    return spec.search or registry.get(spec.method).searches


def _of_same_size(run: Run, spec: Spec) -> Spec:
    """A Spec of a method that only ranks, with the sizes of the answers of the first that searches for the same."""
    leader = next((job for job in run.jobs() if _searches(job) and job.question == spec.question), None)
    own = spec.sizes is not None or any(spec.settings.get(name) is not None for name in ("k", "threshold"))
    if leader is None or own or spec.search or not registry.get(spec.method).ranks:
        return spec
    found = run.explanations(leader.method, question=leader.question)
    return replace(spec, sizes=tuple((e.key, e.size) for e in found if e.seed == leader.seed and not e.rank))


def rule_of(jobs: Sequence[Spec], spec: Spec) -> str:
    """How a method that only ranks chose beside other jobs, in a few words; empty for one that searches."""
    if spec.search or not registry.get(spec.method).ranks:
        return ""
    if isinstance(spec.sizes, tuple):
        leader = next((job.method for job in jobs if _searches(job) and job.question == spec.question), "")
        return f"as many units as the answer of {leader or 'another method'} has, instance by instance"
    size = spec.settings.get("k") if spec.sizes is None else spec.sizes
    if size is not None:
        return f"the {size} units with the highest scores"
    threshold = spec.settings.get("threshold")
    return f"the units with a score above {0.5 if threshold is None else threshold}"


def rules_in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """What stands above a table: how the methods that only rank chose."""
    by_rule: dict[str, list[str]] = {}
    for row in rows:
        if row.get("rule"):
            by_rule.setdefault(row["rule"], []).append(str(row["method"]))
    return "\n".join(
        f"{', '.join(names)} only rank{'s' * (len(names) == 1)}: chosen are {rule}."
        for rule, names in ((rule, list(dict.fromkeys(methods))) for rule, methods in by_rule.items())
    )


def new_path(name: str, specs: Sequence[Spec], resume: bool, home: Path = Path("runs")) -> Path:
    """A directory under `runs/` that says what is explained by what, new, or, to resume, the last of that name."""
    methods = "-".join(dict.fromkeys(spec.method for spec in specs))
    questions = [q for q in dict.fromkeys(spec.question for spec in specs) if q != "why"]
    start = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join([name, methods, *questions]))[:100].strip(".-") or "run"
    places = (home / (start if number == 1 else f"{start}-{number}") for number in count(1))
    before = None
    for place in places:
        if not os.path.lexists(place):
            return before if resume and before is not None else place
        before = place
    raise AssertionError


def runs_table(home: Path) -> list[dict[str, Any]]:
    """The runs right inside of a directory, the newest last: what each explains, by what, and how far it is."""
    require(home.is_dir(), "Expected a directory of runs", got=f"{str(home)!r}, which is not there", do=MAKE_ONE)
    rows = []
    for place in sorted(home.iterdir()):
        if not (place / MANIFEST).is_file():
            continue
        try:
            run = open_run(place)
            counts = run.finished()
            row = {
                "run": str(place),
                "data": run.manifest["source"].get(run.manifest["source"].get("kind"), ""),
                "rows": list(run.rows()),
                "instances": len(run.keys),
                "finished": sum(one.finished for one in counts),
                "asked": sum(one.asked for one in counts),
                "created": run.manifest["created"],
            }
        except (CF2Error, KeyError, OSError, AttributeError) as error:
            row = {"run": str(place), "problem": str(error), "created": ""}
        rows.append(row)
    return sorted(rows, key=lambda row: str(row["created"]))


def summaries(run: Run, method: str | None = None) -> list[dict[str, Any]]:
    """One row per method and question: how much is finished, the metrics over that, the stability under several seeds.

    `found` is the share whose set passes the tests of its question; `default` counts the predictions that the model
    gives also with everything removed.
    """
    rows: list[dict[str, Any]] = []
    wanted = None if method is None else _known(run, method)
    for label, jobs in run.rows().items():
        if wanted not in (None, jobs[0].method):
            continue
        found = run.explanations(jobs[0].method, question=jobs[0].question)
        about = {"method": jobs[0].method, "question": jobs[0].question, "label": label}
        about |= {"rule": rule} if (rule := rule_of(run.jobs(), jobs[0])) else {}
        counts = {"finished": found.context["finished"], "asked": found.context["asked"]}
        if not len(found):
            rows.append({**about, "n": 0, **counts})
            continue
        # Truth is known of edges, so a run that explains features alone has none to compare with.
        masks = found.context.get("truth") if "edges" in found.context["spec"]["units"] else None
        default = sum(e.default is True for e in found)
        share = metrics.answered(found)
        row = {**about, **metrics.evaluate(found, masks), **counts, "found": share, "default": default}
        if len({e.seed for e in found}) > 1:
            row["stability"] = found.stability()
        if large := [e.key for e in found if e.status == "refused"]:
            row["refused"] = large
        rows.append(row)
    if not any(row["n"] for row in rows):
        wanted = f"Expected finished explanations by {rows[0]['label']!r} in {run.path}"
        raise CF2Error(wanted, got="none", do="Run it with --resume.")
    return rows


def unfinished(rows: Sequence[Mapping[str, Any]]) -> str:
    """What to say of rows that are not about all that was asked for."""
    return partial_sentence([Finished(row["label"], row["finished"], row["asked"]) for row in rows])


def report_of_run(
    path: Path, out: Path, pictures: int, patterns: bool = False, trust: bool = False
) -> tuple[Path, str]:
    """Write the page about a run; where it is, and what to say of a run that is not finished."""
    check_place(out)
    run = open_run(path)
    found = {row: run.explanations(jobs[0].method, question=jobs[0].question) for row, jobs in run.rows().items()}
    said = unfinished([{**given.context, "label": row} for row, given in found.items()])
    if patterns:
        find_in_run(path, trust=trust).save(path / Patterns.file_name)
    context = run.context()
    shared, rules = Patterns.of_run(path, context), EditRules.of_run(path, context)
    return write_report(list(found.values()), out, pictures=pictures, patterns=shared, rules=rules), said


def _known(run: Run, method: str) -> str:
    seeds = [spec.seed for spec in run.jobs() if spec.method == method]
    return run.job(method, seeds[0] if seeds else None).method


# -- reading ---------------------------------------------------------------------------------------------


REPORT, RUNS = Path("report.html"), Path("runs")


def evaluate(run: o.RunPath, method: o.EvaluateMethod = None, as_json: o.Json = False) -> None:
    """Score a run: PN, PS, F_NS, size, and accuracy against the truth where it is known.

    Example: cf2 evaluate runs/first --json
    """
    from cf2.runs.store import open_run

    rows = summaries(open_run(run), method)
    if as_json:
        print_json(rows[0] | ({"methods": rows} if len(rows) > 1 else {}))
        return
    say(rules_in_words(rows))
    out.print(table(f"{run}, percent", COMPARED, [compared(row) for row in rows if row["n"]]))
    if said := unfinished(rows):
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

    written, said = report_of_run(run, path, pictures, patterns, trust)
    out.print(f"The report is at {written.resolve()}", soft_wrap=True, highlight=False)
    if said:
        tell(said)


def list_runs(directory: o.RunsPath = RUNS, as_json: o.Json = False) -> None:
    """List the runs in a directory: what each explains, by which methods, and how far it is.

    Example: cf2 runs
    """

    rows = runs_table(directory)
    if as_json:
        print_json(rows)
        return
    good = [row for row in rows if "problem" not in row]
    cells = [[r["run"], r["data"], ", ".join(r["rows"]), f"{r['finished']:,} of {r['asked']:,}"] for r in good]
    out.print(table(f"Runs in {directory}", ("run", "data", "by", "finished"), cells))
    for row in rows:
        if "problem" in row:
            tell(f"{row['run']}: {row['problem']}")


# -- check -----------------------------------------------------------------------------------------------


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
    from cf2.runs.store import open_run, problems_of_files
    from cf2.samples.sources import trusted

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
    from cf2.runs.store import problems_of_source, problems_of_verdicts
    from cf2.samples.sources import restore

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
