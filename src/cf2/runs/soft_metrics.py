"""How far soft masks flatter: the metrics with scores as soft masks, beside those by removal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cf2.errors import CF2Error, require
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.runs.session import Request, Session
from cf2.sets.tests import NECESSARY, SUFFICIENT, passes


def soft_metrics(request: Request, found: Sequence[Explanation]) -> dict[str, float]:
    """PN, PS and F_NS with the scores as soft masks, and the gaps: soft minus removed.

    This is how explanations are often scored, and it flatters: the model never sees such half edges.
    """
    by_key = {e.key: e for e in found}
    require(len(found) > 0, "Expected at least one explanation", got="none")
    require(len(by_key) == len(found), "Expected one explanation per key", got=f"{len(found)} of {len(by_key)} keys")
    shares: dict[str, list[bool]] = {"ps": [], "pn": []}
    asked: list[Explanation] = []  # without those that were refused
    with Session(request) as session:
        for problem in session.problems(list(by_key)):
            here = [by_key[instance.key] for instance in problem.instances]
            asked += here
            scores = np.concatenate([e.scores for e in here])
            if len(scores) != problem.pack.units.count:
                raise CF2Error("Expected explanations of the same units as the request's", got=f"{len(scores)} units")
            mask = torch.from_numpy(scores).to(problem.outputs.device)
            with torch.no_grad(), problem.predictor.soft(problem.pack) as run:
                for name, test in (("ps", SUFFICIENT), ("pn", NECESSARY)):
                    outputs = run(test.intervention.states(mask))
                    shares[name] += passes(problem.criterion, outputs, test.same).tolist()
    values = {name: float(np.mean(passed)) for name, passed in shares.items()}
    values["fns"] = metrics.harmonic(values["pn"], values["ps"])
    hard = {"pn": metrics.pn(asked), "ps": metrics.ps(asked), "fns": metrics.fns(asked)}
    return values | {f"gap_{name}": values[name] - hard[name] for name in hard}
