"""The typed planted set: its rule decides every author, nothing less does, and models take what is missing as empty."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import pytest
import torch

from cf2.errors import CF2Error
from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.samples.models import TYPED_ARCHITECTURES, RelationalConv, build
from cf2.samples.synthetic import CITES, PUBLISHED, REVIEWS, SUBMITTED, WRITES


def near(data, relation):
    found = defaultdict(set)
    for a, b in data[relation].edge_index.t().tolist():
        found[a].add(b)
    return found


def complete_papers(data, author, *, who=WRITES, where=PUBLISHED):
    """The rule, told again: papers of an author at a leading venue that cite a classic."""
    papers, venues, cited = near(data, who), near(data, where), near(data, CITES)
    leading, classic = data["venue"].x[:, 1] > 0, data["paper"].x[:, 1] > 0
    return [p for p in papers[author] if any(leading[v] for v in venues[p]) and any(classic[q] for q in cited[p])]


@pytest.mark.parametrize("seed", [0, 5])
def test_the_rule_decides_and_its_edges_are_the_truth(seed):
    dataset = datasets.load("typed-motifs", seed=seed)
    data = dataset.data
    for author in range(0, 400, 7):
        papers = complete_papers(data, author)
        assert len(papers) == int(dataset.labels[author])
        found = dataset.truth(author)
        if not papers:
            assert found is None
            continue
        chosen = {kind: data[kind].edge_index[:, mask].t().tolist() for kind, mask in found.items() if mask.any()}
        assert set(chosen) == {kind for r in (WRITES, PUBLISHED, CITES) for kind in (r, (r[2], f"rev_{r[1]}", r[0]))}
        assert chosen[WRITES] == [[author, papers[0]]]
        assert all(len(pairs) == 1 for pairs in chosen.values())
        for first, relation, last in (WRITES, PUBLISHED, CITES):
            assert chosen[last, f"rev_{relation}", first] == [pair[::-1] for pair in chosen[first, relation, last]]


def test_other_relations_would_mislead_and_counting_is_no_help():
    dataset = datasets.load("typed-motifs")
    data, labels = dataset.data, dataset.labels.tolist()
    reviewed = [bool(complete_papers(data, author, who=REVIEWS)) for author in range(400)]
    assert 0.3 < sum(map(int, reviewed)) / 400 < 0.9
    tried = [bool(complete_papers(data, author, where=SUBMITTED)) for author in range(400)]
    assert 0.3 < sum(map(int, tried)) / 400 < 0.9
    papers, venues, cited = near(data, WRITES), near(data, PUBLISHED), near(data, CITES)
    leading, classic = data["venue"].x[:, 1] > 0, data["paper"].x[:, 1] > 0
    counts = (
        [len(papers[a]) for a in range(400)],
        [sum(bool(leading[v]) for p in papers[a] for v in venues[p]) for a in range(400)],
        [sum(bool(classic[q]) for p in papers[a] for q in cited[p]) for a in range(400)],
    )
    for count in counts:
        best = max(sum((c >= least) == bool(y) for c, y in zip(count, labels)) for least in range(8))
        assert best / 400 < 0.85


def test_the_fingerprint_knows_the_seed_types_features_and_edges():
    one, again, other = (datasets.load("typed-motifs", seed=seed) for seed in (3, 3, 4))
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
    seen = [one.fingerprint()]
    one.data[CITES].edge_index[0, 0] += 1
    seen.append(one.fingerprint())
    one.data["paper"].x[3] = one.data["paper"].x[3].flip(0)
    seen.append(one.fingerprint())
    one.data["author"].y[0] = 1
    seen.append(one.fingerprint())
    assert len(set(seen)) == 4
    with pytest.raises(CF2Error, match="0 to 399"):
        one.truth(400)


@pytest.mark.parametrize("arch", TYPED_ARCHITECTURES)
def test_types_without_nodes_or_edges_may_be_left_out(arch):
    dataset = datasets.load("typed-motifs")
    torch.manual_seed(0)
    model = build(arch, task="node", types=dataset.types, num_features=1, num_classes=2, hidden=8).eval()
    x = {"author": torch.ones(2, 1), "paper": torch.eye(2)}
    edges = {("paper", "rev_writes", "author"): torch.tensor([[0, 1], [0, 1]])}
    empty = torch.zeros(2, 0, dtype=torch.long)
    whole = {kind: edges.get(kind, empty) for kind in dataset.data.edge_types}
    torch.testing.assert_close(model(x, edges), model({**x, "venue": torch.zeros(0, 2)}, whole))
    assert model(x, edges).shape == (2, 2)
    assert not torch.allclose(model(x, edges), model(x, {}))


@pytest.mark.parametrize("aggregation", ["sum", "symmetric"])
def test_a_relational_layer_has_a_matrix_for_each_relation(aggregation):
    torch.manual_seed(0)
    conv = RelationalConv(3, 2, aggregation)
    x, ends, kind = torch.randn(4, 3), torch.tensor([[0, 1, 2], [3, 3, 0]]), torch.tensor([0, 1, 1])
    each = conv.each.weight.view(2, 3, 3)
    expected = conv.own(x)
    for node in range(4):
        came = [each[k] @ x[a] for a, b, k in zip(*ends.tolist(), kind.tolist()) if b == node]
        if came:
            expected[node] = expected[node] + torch.stack(came).sum(0) / (1 if aggregation == "sum" else len(came))
    torch.testing.assert_close(conv(x, ends, kind), expected)


def test_training_on_types_refuses_what_does_not_fit():
    dataset = datasets.load("typed-motifs")
    with pytest.raises(CF2Error, match="`arch`"):
        training.train(dataset, arch="gcn")
    with pytest.raises(CF2Error, match="Expected a typed graph for `arch` 'hgt'"):
        training.train(datasets.load("tree-cycles"), arch="hgt")


PARTS = [frozenset(part) for size in range(4) for part in combinations((WRITES, PUBLISHED, CITES), size)]


def test_the_shipped_model_follows_the_rule():
    """Of the planted edges, all three make a laureate, and no part does; without any one of them nobody is one."""
    dataset = datasets.load("typed-motifs")
    model, about = training.load("typed-motifs", dataset)
    _, tests = datasets.split(dataset, about.seed)
    assert about.test_accuracy == 1.0
    right, tried, data = 0, 0, dataset.data
    for author in [i for i in tests.tolist() if dataset.labels[i] == 1]:
        truth = dataset.truth(author)
        for part in PARTS:
            names = {name for _, relation, _ in part for name in (relation, f"rev_{relation}")}
            for inside in (True, False):
                edges = {}
                for kind, mask in truth.items():
                    chosen = mask if kind[1] in names else torch.zeros_like(mask)
                    edges[kind] = data[kind].edge_index[:, chosen if inside else ~chosen]
                with torch.no_grad():
                    found = int(model(data.x_dict, edges)[author].argmax())
                right += found == int(len(part) == 3 if inside else not part)
                tried += 1
    assert right / tried > 0.97
