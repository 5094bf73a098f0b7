"""Metrics over explanations: verdicts, sizes, fidelity, ground truth and stability, with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cf2.errors import CF2Error, reading, require, require_number, shown
from cf2.models.outputs import output_kind
from cf2.options import MAX_ITEMS, Key, plain_number
from cf2.results.explanation import VERDICTS, Explanation
from cf2.results.names import entry

if TYPE_CHECKING:
    from cf2.results.explanations import Explanations

DRAWS = 1000  # resamples of a bootstrap
MAX_DRAWN_AT_ONCE = 5_000_000  # numbers
TRUTH_FIELDS = ("acc", "pr", "re", "f1")


__all__ = [
    *("Correlation", "Fidelity", "Judgement", "auc", "characterisation", "correlation", "evaluate", "fidelity"),
    *("fns", "harmonic", "intervals", "jaccard", "judge", "passed", "pn", "pns", "ps", "size", "sparsity"),
    *("stability", "summary", "true_units", "truth"),
]


def pn(found: Sequence[Explanation]) -> float:
    """Probability of necessity: the share of explanations without which the prediction changes."""
    return _mean(found, lambda e: e.necessary)


def ps(found: Sequence[Explanation]) -> float:
    """Probability of sufficiency: the share of explanations that alone keep the prediction."""
    return _mean(found, lambda e: e.sufficient)


def fns(found: Sequence[Explanation]) -> float:
    """F_NS = 2 PN PS / (PN + PS), 0 where both are 0."""
    return harmonic(pn(found), ps(found))


def pns(found: Sequence[Explanation]) -> float:
    """The mean of `e.pns`, over the explanations that were measured over contexts (`contexts=`); NaN without any."""
    measured = [e.pns[0] for e in _best(found) if e.pns is not None]
    return float(np.mean(measured)) if measured else float("nan")


def harmonic(one: float, other: float) -> float:
    """The harmonic mean of two shares, 0 where both are 0.

    >>> harmonic(1.0, 0.5), harmonic(0.0, 0.0)
    (0.6666666666666666, 0.0)
    """
    for share in (one, other):
        require_number("share", plain_number(share), 0, 1)
    return 2 * one * other / (one + other) if one + other else 0.0


def size(found: Sequence[Explanation]) -> float:
    """The mean number of units of an explanation."""
    return _mean(found, lambda e: e.size)


def sparsity(found: Sequence[Explanation]) -> float:
    """The mean share of the units that an explanation leaves out."""
    return _mean(found, lambda e: 1 - e.size / max(e.num_units, 1))


def passed(found: Sequence[Explanation]) -> float:
    """The share of explanations that are sufficient and necessary at once."""
    return _mean(found, lambda e: e.sufficient and e.necessary)


def answered(found: Sequence[Explanation]) -> float:
    """The share of explanations that pass every test of their question."""
    return _mean(found, lambda e: all(getattr(e, name) for name in VERDICTS.get(e.question, ())))


class Fidelity(NamedTuple):
    """How far the probability of the explained class falls without the explanation, and with only it."""

    plus: float
    minus: float


def fidelity(found: Sequence[Explanation]) -> Fidelity:
    """fid₊ = mean P(ŷ|G) - P(ŷ|G without E), high is good; fid₋ = mean P(ŷ|G) - P(ŷ|E alone), low is good.

    Of a regression, both are mean distances in the model's own unit. Where no node is left, the model says nothing:
    P is 0, and a distance is not counted.
    """
    whole, only, without = (
        np.array([getattr(e, name)[e.explained] for e in _best(found)], dtype=float)
        for name in ("probabilities", "probabilities_only", "probabilities_without")
    )
    if not all(output_kind(e.output).probability for e in _best(found)):  # a number may rise or fall
        plus, minus = (np.abs(whole - part)[~np.isnan(part)] for part in (without, only))
        return Fidelity(*(float(part.mean()) if len(part) else 0.0 for part in (plus, minus)))
    plus, minus = (whole - np.nan_to_num(part) for part in (without, only))
    return Fidelity(float(plus.mean()), float(minus.mean()))


def characterisation(plus: float, minus: float, weight: float = 0.5) -> float:
    """The weighted harmonic mean of fid₊ and 1 - fid₋, 0 where either is 0 (GraphFramEx).

    >>> characterisation(1.0, 0.5)
    0.6666666666666666
    """
    require_number("weight", weight, 0, 1)
    for name, value in (("plus", plus), ("minus", minus)):
        require_number(name, plain_number(value), -float("inf"))
    if not plus or minus == 1:
        return 0.0
    return 1.0 / (weight / plus + (1 - weight) / (1 - minus))


def summary(found: Sequence[Explanation]) -> dict[str, Any]:
    """All metrics that need only the explanations, and the cost."""
    found = _explanations(found)
    plus, minus = fidelity(found)
    shares = {metric.__name__: metric(found) for metric in (pn, ps, fns, size, passed, sparsity)}
    fidelities = {"fidelity_plus": plus, "fidelity_minus": minus, "characterisation": characterisation(plus, minus)}
    cost = {name: float(np.mean([getattr(e, name) for e in found])) for name in ("evaluations", "seconds")}
    surely = {"pns": pns(found)} if any(e.pns is not None for e in _best(found)) else {}
    return {"n": len(found)} | shares | surely | fidelities | cost


# -- over seeds, and between metrics ----------------------------------------------------------------------------------


def jaccard(one: Explanation, other: Explanation) -> float:
    """The overlap of the units of two explanations of the same instance; two empty ones are equal."""
    one, other = _explanations([one, other])
    first, second = ({(name, *ids) for name in e.units.names for ids in e.chosen(name).tolist()} for e in (one, other))
    union = first | second
    return len(first & second) / len(union) if union else 1.0


def stability(found: Sequence[Explanation]) -> float:
    """The mean Jaccard overlap of explanations of one key by one method, over all pairs of seeds."""
    groups: dict[tuple[Key, str], list[Explanation]] = {}
    for e in _explanations(found):
        groups.setdefault((e.key, e.method), []).append(e)
    overlaps = [jaccard(a, b) for group in groups.values() for a, b in combinations(group, 2) if a.seed != b.seed]
    cure = "Explain the same keys with several values of `seed` and add the results."
    require(bool(overlaps), "Expected explanations of the same key under at least two seeds", got="none", do=cure)
    return float(np.mean(overlaps))


class Correlation(NamedTuple):
    """Kendall's τ and Spearman's ρ; NaN where one of the two metrics is the same for all methods."""

    tau: float
    rho: float


def correlation(one: Sequence[float], other: Sequence[float]) -> Correlation:
    """How far two metrics rank the same methods alike.

    >>> correlation([1, 2, 3, 4], [2, 1, 3, 4])
    Correlation(tau=0.6666666666666669, rho=0.7999999999999999)
    """
    from scipy.stats import kendalltau, spearmanr

    first, second = (_numbers(given, "a metric of several methods") for given in (one, other))
    expected = "Expected two metrics of the same methods, at least two of them"
    require(len(first) == len(second) > 1, expected, got=f"{len(first)} and {len(second)} values")
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return Correlation(float("nan"), float("nan"))
    return Correlation(float(kendalltau(first, second).statistic), float(spearmanr(first, second).statistic))


# -- ground truth ------------------------------------------------------------------------------------------------------


def truth(found: Sequence[Explanation], masks: Any, data: Any = None) -> dict[str, float]:
    """Accuracy, precision, recall, F1 and AUC per instance over the edges of its receptive field, averaged.

    Parameters
    ----------
    found : sequence of Explanation
    masks : mapping from keys, or list in the order of `found`
        The true edges: pairs of node ids [n, 2], or a bool for each column of the `edge_index` of `data`; of a typed
        graph pairs by edge type. Keys without truth are left out.
    data : Data or sequence of Data, optional
        The graph, or the graphs that the keys count, for masks with a bool per column.

    Returns
    -------
    dict of str to float
        `acc`, `pr`, `re`, `f1`, `truths` (how many were compared) and `auc`, which ranks by score, leaves out instances
        in which all edges or none are true, and is not there if that leaves none.
    """
    rows = [instance_scores(e, mask, data) for e, mask in with_masks(found, masks)]
    require(len(rows) > 0, "Expected the true edges of at least one explained key in `masks`", got="none")
    table = np.array(rows)
    ranked = table[~np.isnan(table[:, 4]), 4]
    values = dict(zip(TRUTH_FIELDS, table[:, :4].mean(0).tolist()))
    return values | ({"auc": float(ranked.mean())} if len(ranked) else {}) | {"truths": len(rows)}


def true_units(e: Explanation, mask: Any, data: Any = None) -> np.ndarray:
    """Which edge units of an explanation are true, bool [edge units]; `mask` and `data` as in `truth`."""
    (e,) = _explanations([e])
    if e.types is not None:
        require(isinstance(mask, Mapping), f"Expected the true edges of {e.key} by edge type", got=type(mask).__name__)
        return e.true_edges(mask)
    what = f"the true edges of {e.key} as pairs of node ids or as a bool mask"
    values = _array(mask, what)
    if values.dtype == bool:
        edge_index = None if data is None else _edge_index(data, e)
        count = len(e.units.where("edges")) if edge_index is None else edge_index.shape[1]
        columns = "edges" if edge_index is None else "columns of edge_index"
        require(
            values.shape == (count,),
            f"Expected pairs of node ids, or a bool for each of the {count} {columns} of {e.key}",
            got=f"a mask of shape {values.shape}",
            do="For a bool per column of edge_index, pass the graph or graphs as `data`." if data is None else "",
        )
        if edge_index is None:
            return values
        values = edge_index[:, values].T
    pairs = values.ndim == 2 and values.shape[1] == 2 and values.dtype.kind in "iu"
    require(pairs or not values.size, f"Expected {what}", got=f"shape {values.shape} of {values.dtype}")
    return e.true_edges(values)


def instance_scores(e: Explanation, mask: Any, data: Any = None) -> tuple[float, ...]:
    """Accuracy, precision, recall, F1 and AUC of one explanation."""
    rows = e.units.where("edges")
    true, chosen = true_units(e, mask, data), e.selected[rows]
    hits, picked, wanted = int((true & chosen).sum()), int(chosen.sum()), int(true.sum())
    accuracy = float((true == chosen).mean()) if len(true) else 1.0
    f1 = 2 * hits / (picked + wanted) if picked + wanted else 0.0
    return accuracy, hits / max(picked, 1), hits / max(wanted, 1), f1, auc(e.scores[rows], true)


def auc(scores: np.ndarray, true: np.ndarray) -> float:
    """The probability that a true edge scores above a false one, a tie counting half; NaN without both."""
    from scipy.stats import rankdata

    scores, true = _numbers(scores, "scores"), _numbers(true, "a truth value for each score").astype(bool)
    require(len(scores) == len(true), f"Expected {len(scores)} truth values, one per score", got=len(true))
    good, bad = int(true.sum()), int((~true).sum())
    if not good or not bad:
        return float("nan")
    return float((rankdata(scores)[true].sum() - good * (good + 1) / 2) / (good * bad))


def with_masks(found: Sequence[Explanation], masks: Any) -> list[tuple[Explanation, Any]]:
    """Each explanation whose truth is known, with its mask."""
    found = _explanations(found)
    return [(e, mask) for e, mask in zip(found, _one_each(found, masks)) if mask is not None]


def _one_each(found: Sequence[Explanation], masks: Any) -> list[Any]:
    with reading(masks, "Expected `masks` by key, or a list of them"):
        by_key = isinstance(masks, Mapping)  # JSON has only string keys
        listed = [entry(masks, e.key) for e in found] if by_key else list(islice(masks, MAX_ITEMS))
    require(len(listed) == len(found), f"Expected one mask per explanation, {len(found)}", got=f"{len(listed)} masks")
    return listed


# -- explanations of others -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Judgement:
    """Verdicts on given sets of edges, one explanation per instance."""

    explanations: Explanations

    @property
    def rows(self) -> Any:
        """One row per instance, as a pandas DataFrame; `ps`, `pn` and `pns` are over contexts."""
        return self.explanations.to_pandas()[["key", "size", "sufficient", "necessary", "ps", "pn", "pns"]]

    @property
    def means(self) -> dict[str, float]:
        """PN and PS, the shares that pass each test, their F_NS, the mean PNS over contexts, and the mean size."""
        return {metric.__name__: metric(self.explanations) for metric in (pn, ps, fns, pns, size)}

    def __repr__(self) -> str:
        words = {"pn": "PN", "ps": "PS", "fns": "F_NS", "pns": "PNS", "size": "size"}
        means = ", ".join(f"{words[name]} {value:.2f}" for name, value in self.means.items())
        return f"{len(self.explanations)} explanations judged: {means}\n{self.rows.round(3).to_string(index=False)}"


def judge(
    model: Any,
    data: Any,
    masks: Any,
    nodes: Any = None,
    *,
    size: int | None = None,
    threshold: float = 0.5,
    contexts: int = 64,
    **options: Any,
) -> Judgement:
    """Test explanations from any source on edited graphs.

    Parameters
    ----------
    model, data, nodes
        As in `cf2.explain`.
    masks : sequence, or mapping by key
        One per instance: an `Explanation` of torch_geometric with an `edge_mask`; a number or a bool per column of
        `edge_index`; or edges as pairs of node ids, [n, 2].
    size, threshold : int or None, float
        For soft masks: take the `size` highest edges, or those above `threshold`. An edge and its reverse count as one
        edge with the higher of the two values, unless directed=True.
    contexts : int
        Number of contexts for PNS.
    **options
        Further options of `cf2.explain`, such as `output=` or `directed=`.

    Returns
    -------
    Judgement
        Edges outside the receptive field of a node are not counted, because its prediction cannot depend on them.
    """
    from cf2.api import explain

    require("method" not in options, "Expected no `method`: the masks are judged", got=shown(options.get("method"), 80))
    require(
        "k" not in options, "Expected an option of `judge`", got="'k'", do="Pass size=… for the edges of highest value."
    )
    known = explain(model, data, nodes, method="random", k=1, **options)  # the keys, in their order
    chosen: dict[Key, Any] = {}
    for e, mask in zip(known, _one_each(known, masks)):
        graph = data[e.key] if e.task == "graph" and not hasattr(data, "edge_index") else data
        chosen[e.key] = _chosen_pairs(mask, graph, e.directed, size, threshold)
    return Judgement(explain(model, data, nodes, method="truth", trained=chosen, contexts=contexts, **options))


def _chosen_pairs(mask: Any, graph: Any, directed: bool, size: int | None, threshold: float) -> np.ndarray:
    """The edges [n, 2] that a mask of any form takes."""
    mask = getattr(mask, "edge_mask", mask)
    values = mask.detach().cpu().numpy() if hasattr(mask, "detach") else np.asarray(mask)
    if values.ndim == 2 or not values.size:
        rows = values.reshape(-1, 2) if values.ndim != 2 or values.shape[1] == 2 else values.T
        require(rows.shape[1] == 2, "Expected edges as pairs of nodes, [n, 2]", got=f"shape {values.shape}")
        return rows.astype(np.int64)
    ends = graph.edge_index.cpu().numpy().T
    require(values.shape == (len(ends),), f"Expected a number per edge, {len(ends)}", got=f"shape {values.shape}")
    ends = ends if directed else np.sort(ends, axis=1)
    pairs, unit = np.unique(ends, axis=0, return_inverse=True)
    # Both directions of an edge are one unit: taking one of them alone is nothing that could be tested.
    best = np.full(len(pairs), -np.inf)
    np.maximum.at(best, unit.reshape(-1), values.astype(float))
    if size is None:
        return pairs[best > threshold]
    return pairs[np.sort(np.argsort(-best, kind="stable")[:size])]


# -- how sure a number is ----------------------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A value and the range in which it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def share(passed: Sequence[bool]) -> Estimate:
    """A share of instances with Wilson's interval, which stays inside [0, 1] and works at 0 and 1.

    >>> [round(float(v), 3) for v in share([True] * 10)]
    [1.0, 0.722, 1.0]
    """
    from scipy.stats import binomtest

    require(len(passed) > 0, "Expected at least one instance", got="none")
    test = binomtest(int(np.sum(passed)), len(passed))
    low, high = test.proportion_ci(method="wilson")
    return Estimate(float(test.statistic), float(low), float(high))


def bootstrap(values: Any, statistic: Callable[..., Any] = np.mean, *, draws: int = DRAWS) -> Estimate:
    """A statistic over instances with its percentile interval under resampling; the same for every call.

    Parameters
    ----------
    values : array-like, shape [n] or [n, k]
        One row per instance; with k columns, `statistic` takes k arrays.
    statistic : callable
        Takes arrays and the `axis` over instances; the mean if not given.
    draws : int
        How many resamples are drawn.
    """
    from scipy.stats import bootstrap as resample

    rows = np.asarray(values, dtype=float)
    require(len(rows) > 0, "Expected at least one value to draw from", got="none")
    columns = tuple(rows.reshape(len(rows), -1).T)
    value = float(statistic(*columns, axis=-1))
    if len(rows) == 1 or all(np.ptp(column) == 0 for column in columns):
        return Estimate(value, value, value)  # every resample is the sample
    interval = resample(
        columns,
        statistic,
        n_resamples=draws,
        batch=max(1, MAX_DRAWN_AT_ONCE // len(rows)),
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(value, float(interval.low), float(interval.high))


def harmonic_of_shares(necessary: Any, sufficient: Any, axis: int = -1) -> Any:
    """F_NS of two columns of verdicts."""
    pn, ps = np.mean(necessary, axis), np.mean(sufficient, axis)
    return 2 * pn * ps / np.maximum(pn + ps, 1e-12)


def intervals(found: Sequence[Explanation], masks: Any = None, data: Any = None) -> dict[str, Estimate]:
    """PN, PS, F_NS and the size with their 95 % intervals, and the truth metrics where `masks` are given.

    Parameters
    ----------
    found : sequence of Explanation
    masks, data
        The true edges, as in `truth`.

    Returns
    -------
    dict of str to Estimate
        A value, its lower and its upper end.
    """
    best = _best(found)
    verdicts = np.array([(e.necessary, e.sufficient) for e in best])
    ranges = {
        "pn": share(verdicts[:, 0].tolist()),
        "ps": share(verdicts[:, 1].tolist()),
        "fns": bootstrap(verdicts, harmonic_of_shares),
        "size": bootstrap([e.size for e in best]),
    }
    measured = [e.pns[0] for e in best if e.pns is not None]
    ranges |= {"pns": bootstrap(measured)} if measured else {}
    rows = [] if masks is None else [instance_scores(e, mask, data)[:4] for e, mask in with_masks(found, masks)]
    if rows:
        table = np.array(rows)
        ranges |= {name: bootstrap(table[:, column]) for column, name in enumerate(TRUTH_FIELDS)}
    return ranges


def evaluate(found: Sequence[Explanation], masks: Any = None, data: Any = None) -> dict[str, Any]:
    """All metrics in one dict: the summary, the truth metrics where masks are known, and 95 % intervals."""
    values = summary(found)
    if masks is not None and with_masks(found, masks):
        values |= truth(found, masks, data)
    ranges = intervals(found, masks, data)
    return values | {"intervals": {name: [e.low, e.high] for name, e in ranges.items()}}


def _best(found: Sequence[Explanation]) -> Sequence[Explanation]:
    """The best answer of every key: alternatives to it are not counted."""
    best = [e for e in _explanations(found) if not e.rank]
    require(len(best) > 0, "Expected at least one explanation", got="none")
    return best


def _explanations(found: Any) -> Sequence[Explanation]:
    """What every metric begins with: explanations, and nothing else."""
    expected = "Expected explanations, as `cf2.explain` gives them"
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise CF2Error(expected, got=shown(found, 80))
    for e in found:
        if not isinstance(e, Explanation):  # only then is it shown: the repr of Explanations asks for metrics
            raise CF2Error(expected, got=f"{shown(e, 80)} among them")
    return found


def _array(given: Any, what: str) -> np.ndarray:
    """Anything that numpy reads as an array of numbers or truth values."""
    with reading(given, f"Expected {what}"):  # a list may be ragged, and a tensor without values
        values = np.asarray(given)
    require(values.dtype.kind in "biuf", f"Expected {what}", got=shown(given, 80))
    return values


def _numbers(given: Any, what: str) -> np.ndarray:
    values = _array(given, what)
    require(values.ndim == 1, f"Expected {what} in a list", got=f"shape {values.shape}")
    return values


def _edge_index(data: Any, e: Explanation) -> np.ndarray:
    """The columns that a mask with a bool for each is about."""
    with reading(data, f"Expected the graph of {e.key} as `data`, or the graphs that the keys count"):
        graph = data if hasattr(data, "edge_index") else data[e.key]
        return np.asarray(graph.edge_index)


def _mean(found: Sequence[Explanation], value: Callable[[Explanation], float]) -> float:
    return float(np.mean([value(e) for e in _best(found)]))
