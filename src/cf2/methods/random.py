"""Random scores: the lower line of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cf2.methods.method import Chunk, Method, Ranking, check_choice, choose


@dataclass(frozen=True)
class Settings:
    """`k` units, or those above `threshold` (0.5 if neither is given: about half of them)."""

    k: int | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        check_choice(self.k, self.threshold)


def rank(chunk: Chunk, settings: Settings) -> Ranking:
    """Uniform scores from a stream of each instance's own: the seed (0 if there is none) and its key."""
    seed = 0 if chunk.seed is None else chunk.seed
    parts = []
    for key, units in zip(chunk.pack.keys.tolist(), chunk.pack.units.tolist()):
        stream = torch.Generator().manual_seed((seed * 1_000_003 + key) % (2**63))
        parts.append(torch.rand(units, generator=stream))
    scores = torch.cat(parts).to(chunk.y.device)
    selected = choose(scores, chunk.pack, k=settings.k, threshold=settings.threshold)
    return Ranking(scores, selected, torch.zeros(chunk.pack.size, dtype=torch.long))


METHOD = Method(
    name="random",
    summary="uniform scores, the lower line of a comparison",
    settings=Settings,
    rank=rank,
)
