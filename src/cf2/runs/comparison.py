"""Several methods, seeds and questions in one run: their jobs, what makes them comparable, their rows of a table."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Any, Unpack

from cf2.errors import CF2Error, require
from cf2.methods import registry
from cf2.options import Key, Spec
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.runs import engines
from cf2.runs.source import ModelAndData
from cf2.runs.store import EDIT_OPTIONS, MANIFEST, Finished, Store, partial_sentence
from cf2.sets.search import Search

COUNTERFACTUAL = "counterfactual"
MAKE_ONE = "Make one with: cf2 explain ba-shapes --nodes 300-310"


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
    plain = {name: value for name, value in options.items() if name not in EDIT_OPTIONS}
    return [
        Spec(
            **(options if question == COUNTERFACTUAL or COUNTERFACTUAL not in questions else plain),
            method=method,
            seed=seed,
            question=question,  # type: ignore[arg-type]  # a Spec refuses others
            settings={name: value for name, value in settings.items() if name in known[method]},
        )
        for method in methods
        for question in questions
        for seed in seeds
    ]


def explain(
    path: Path,
    source: ModelAndData,
    specs: Sequence[Spec],
    *,
    keys: Sequence[Key] | None,
    resume: bool,
    **where: Unpack[engines.Where],
) -> Store:
    """Do what is asked for, or what is left of it; what is finished is on the disk within seconds.

    What can be checked of all methods is checked before the first of them starts. Methods that search come first:
    those that only rank then choose as many units, unless they are given sizes of their own.
    """
    engines.check(where.get("engine", "local"), where.get("workers"))
    explained = source.targets(specs[0]).check(source.keys(specs[0]) if keys is None else keys)
    for spec in specs:
        source.request(explained, spec)
        source.check_needs(spec, explained)
    run = None
    for spec in sorted(specs, key=lambda spec: not _searches(spec)):
        if run is not None:
            spec = _of_same_size(run, spec)
        run = Store.create(path, source, spec, keys=explained, resume=resume or run is not None)
        engines.explain_run(run, run.job(spec.method, spec.seed, spec.question), **where)
    assert run is not None
    return run


def _searches(spec: Spec) -> bool:
    return spec.search or registry.get(spec.method).searches


def _leader(jobs: Sequence[Spec], spec: Spec) -> Spec | None:
    """The first job that searches for an answer to the question of a Spec."""
    return next((job for job in jobs if _searches(job) and job.question == spec.question), None)


def _of_same_size(run: Store, spec: Spec) -> Spec:
    """A Spec of a method that only ranks, with the sizes of the answers of the first that searches for the same."""
    leader = _leader(run.jobs(), spec)
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
        leader = _leader(jobs, spec)
        name = "another method" if leader is None else leader.method
        return f"as many as {name} selects for the same instance"
    size = spec.settings.get("k") if spec.sizes is None else spec.sizes
    if size is not None:
        return f"the {size} units with the highest scores"
    threshold = spec.settings.get("threshold")
    return f"the units with a score above {0.5 if threshold is None else threshold}"


def rules_in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """What stands above a table: how the methods that only rank chose."""
    by_rule: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.get("rule"):
            by_rule.setdefault(row["rule"], {})[str(row["method"])] = None
    return "\n".join(
        f"{', '.join(names)} only rank{'s' * (len(names) == 1)} units; selected: {rule}."
        for rule, names in by_rule.items()
    )


def new_path(name: str, specs: Sequence[Spec], resume: bool, home: Path = Path("runs")) -> Path:
    """A directory under `runs/` that says what is explained by what, new, or, to resume, the last of that name."""
    methods = "-".join(dict.fromkeys(spec.method for spec in specs))
    questions = [q for q in dict.fromkeys(spec.question for spec in specs) if q != "why"]
    start = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join([name, methods, *questions]))[:100].strip(".-") or "run"
    last, path = None, home / start
    for number in count(2):
        if not os.path.lexists(path):
            break
        last, path = path, home / f"{start}-{number}"
    return last if resume and last is not None else path


def list_runs(home: Path) -> list[dict[str, Any]]:
    """The runs right inside of a directory, the newest last: what each explains, by what, and how far it is."""
    require(home.is_dir(), "Expected a directory of runs", got=f"{str(home)!r}, which is not there", do=MAKE_ONE)
    rows = []
    for path in sorted(path for path in home.iterdir() if (path / MANIFEST).is_file()):
        row: dict[str, Any] = {"run": str(path)}
        try:
            run = Store.open(path)
            counts, source = run.finished(), run.manifest["source"]
            row |= {
                "data": str(source.get(source.get("kind"), "")),
                "rows": list(run.rows()),
                "instances": len(run.keys),
                "finished": sum(row.finished for row in counts),
                "asked": sum(row.asked for row in counts),
                "created": run.manifest["created"],
            }
        except (CF2Error, OSError) as error:
            row |= {"problem": str(error), "created": ""}
        rows.append(row)
    return sorted(rows, key=lambda row: str(row["created"]))


def summaries(run: Store, method: str | None = None) -> list[dict[str, Any]]:
    """One row per method and question: how much is finished, the metrics over that, the stability under several seeds.

    `found` is the share whose set passes the tests of its question; `default` counts the predictions that the model
    gives also with everything removed, and `default_class` is the class of these where it is that of most instances.
    """
    if method is not None and method not in run.methods():
        run.job(method)  # which says which there are
    rows: list[dict[str, Any]] = []
    for label, jobs in run.rows().items():
        if method not in (None, jobs[0].method):
            continue
        found = run.explanations(jobs[0].method, question=jobs[0].question)
        row: dict[str, Any] = {"method": jobs[0].method, "question": jobs[0].question, "label": label}
        row |= {"rule": rule} if (rule := rule_of(run.jobs(), jobs[0])) else {}
        counts = {"finished": found.context["finished"], "asked": found.context["asked"]}
        if not len(found):
            rows.append({**row, "n": 0, **counts})
            continue
        # Truth is known of edges, so a run that explains features alone has none to compare with.
        masks = found.context.get("truth") if any("edges" in e.units.names for e in found) else None
        row |= metrics.evaluate(found, masks) | counts
        row |= {"found": metrics.answered(found), **_kept_without(found)}
        row["statuses"] = dict(Counter(e.status for e in found))
        if len({e.seed for e in found}) > 1:
            row["stability"] = found.stability()
        if large := [e.key for e in found if e.status == "refused"]:
            row["refused"] = large
        rows.append(row)
    if not any(row["n"] for row in rows):
        expected = f"Expected finished explanations by {rows[0]['label']!r} in {run.path}"
        raise CF2Error(expected, got="none", do="Run it with --resume.")
    return rows


def _kept_without(found: Sequence[Explanation]) -> dict[str, Any]:
    """How many predictions stay with everything removed, and the class that an empty graph of most instances has."""
    classes: Counter[int | None] = Counter(e.prediction for e in found if e.default)
    (number, count), *_ = classes.most_common(1) or [(None, 0)]
    return {"default": classes.total(), "default_class": number if 2 * count > len(found) else None}


def unfinished(rows: Sequence[Mapping[str, Any]]) -> str:
    """What to say of rows that are not about all that was asked for."""
    return partial_sentence([Finished(row["label"], row["finished"], row["asked"]) for row in rows])
