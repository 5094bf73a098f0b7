"""Random scores: the lower reference of every comparison."""

from __future__ import annotations

from cf2.methods.contract import Method, Problem, Ranking, RankSettings, draws, ranked


def rank(problem: Problem, settings: RankSettings) -> Ranking:
    """Uniform scores from a stream of each instance's own: the seed (0 if there is none) and its key."""
    return ranked(problem, draws(problem.pack, problem.seed or 0), settings, 0)


METHOD = Method(
    name="random",
    title="random",
    summary="uniform scores, the lower reference of a comparison",
    settings=RankSettings,
    rank=rank,
    edits=True,
    draws=True,
    paper=("k",),
)
