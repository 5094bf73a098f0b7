"""What `cf2 evaluate` says of a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cf2 import metrics
from cf2.errors import require
from cf2.runs import Job, Run, open_run


def evaluate_run(path: str | Path) -> dict[str, Any]:
    """All metrics of the first job of a run, with `jobs` for each of them if there are several.

    `pending` counts keys that are not explained yet; `stability` compares the seeds of one method.
    """
    run = open_run(path)
    jobs = [values for job in run.jobs() if (values := _evaluate(run, job)) is not None]
    require(
        len(jobs) > 0,
        f"Expected finished explanations in {str(path)!r}",
        got="none",
        do="Finish the run with --resume.",
    )
    result = dict(jobs[0])
    if len(jobs) > 1:
        result["jobs"] = jobs
    stability = {}
    for method in run.methods():
        if len({job.seed for job in run.jobs() if job.method == method}) > 1:
            stability[method] = metrics.stability(run.explanations(method))
    return result | ({"stability": stability} if stability else {})


def _evaluate(run: Run, job: Job) -> dict[str, Any] | None:
    wanted = run.explanations(job.method)
    found = [e for e in wanted if e.seed == job.seed]
    if not found:
        return None
    pending = len(run.keys) - len(found)
    about = {
        "method": job.method,
        "seed": job.seed,
        "dataset": wanted.context.get("dataset"),
        "pending": pending,
    }
    # Truth is known of edges, so a run that explains features alone has none to compare with.
    return about | metrics.evaluate(found, wanted.context.get("truth") if run.manifest["edges"] else None)
