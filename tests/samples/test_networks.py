"""Networks: no predicted edge is in the graph, and half of the pairs are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from cf2.errors import CF2Error
from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.samples.models import ARCHITECTURES, build
from cf2.samples.networks import _planetoid, link_dataset


def grid(side: int = 12) -> Data:
    """A grid of papers, each with the words of its row and its column."""
    at = torch.arange(side * side)
    row, column = at // side, at % side
    right, down = at[column < side - 1], at[row < side - 1]
    ends = torch.cat([torch.stack([right, right + 1]), torch.stack([down, down + side])], 1)
    x = torch.cat([torch.eye(side)[row], torch.eye(side)[column]], 1)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))


def as_set(pairs: Any) -> set[tuple[int, ...]]:
    return {tuple(sorted(pair)) for pair in pairs.tolist()}


def check_links(whole: Data, dataset: datasets.Dataset) -> None:
    everything, messages = as_set(whole.edge_index.t()), as_set(dataset.data.edge_index.t())
    links = as_set(dataset.pairs[dataset.labels == 1])
    others = as_set(dataset.pairs[dataset.labels == 0])
    assert messages | links == everything
    assert not messages & links
    assert not others & everything
    assert len(links) == len(others) == int((dataset.labels == 0).sum())
    assert all(a != b for a, b in others)
    assert dataset.data.is_undirected()
    assert torch.equal(dataset.data.x, whole.x)


def test_edges_carry_messages_or_are_predicted_seeded_and_tests_are_half_links() -> None:
    one, again, other = (link_dataset("grid", grid(), seed) for seed in (3, 3, 4))
    check_links(grid(), one)
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
    train, test = datasets.split(one, 7)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(one)))
    assert one.labels[test].float().mean() == 0.5
    assert one.labels[test[:10]].tolist() == [1, 0] * 5
    assert torch.equal(datasets.split(one, 8)[1], test)
    assert not torch.equal(datasets.split(one, 8)[0], train)


def test_keys_are_pairs_and_others_are_refused() -> None:
    dataset = link_dataset("grid", grid())
    assert dataset.keys([0, 2]) == [tuple(dataset.pairs[0].tolist()), tuple(dataset.pairs[2].tolist())]
    assert dataset.truth((0, 143)) is None
    for key in ((0, 144), (-1, 2), 3, (1, 2, 3)):
        with pytest.raises(CF2Error, match=r"a pair of 'grid', \(0, 0\) to \(143, 143\)"):
            dataset.truths(key)


def test_a_graph_that_is_too_small_or_too_full_is_refused() -> None:
    with pytest.raises(CF2Error, match="at least ten edges"):
        link_dataset("tiny", grid(2))
    full = torch.tensor([(a, b) for a in range(8) for b in range(8) if a != b]).t()
    with pytest.raises(CF2Error, match="pairs of nodes that are no edges"):
        link_dataset("full", Data(x=torch.eye(8), edge_index=full))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_model_of_pairs_gives_a_logit_per_pair(arch: str) -> None:
    torch.manual_seed(0)
    data = grid(3)
    model = build(arch, task="pair", num_features=6, num_classes=1, hidden=8, layers=2).eval()
    pairs = torch.tensor([[0, 1, 4, 0], [1, 0, 4, 8]])
    found = model(data.x, data.edge_index, pairs)
    assert found.shape == (4,)
    torch.testing.assert_close(found[0], found[1])
    *_, last = model.convs
    h = last(model.convs[0](data.x, data.edge_index).relu(), data.edge_index)
    torch.testing.assert_close(found, (h[pairs[0]] * h[pairs[1]]).sum(1), rtol=1e-4, atol=1e-5)


def test_training_on_pairs_learns_and_a_saved_model_knows_its_division(tmp_path: Path) -> None:
    dataset = link_dataset("grid", grid())
    first, about = training.train(dataset, epochs=60, lr=0.02)
    assert about.test_accuracy > 0.7
    assert about.validation_accuracy is not None
    answers = training.predict(first, dataset)
    _, tests = datasets.split(dataset)
    right = [int(first(dataset.data.x, dataset.data.edge_index, dataset.pairs[[i]].t()) > 0) for i in tests.tolist()]
    assert answers[tests].tolist() == right
    assert about.test_accuracy == pytest.approx(float((answers == dataset.labels)[tests].float().mean()))
    assert datasets.instances_to_explain(dataset, tests, answers).tolist() == tests.tolist()[:200]
    path = training.save(tmp_path / "mine", first, about)
    with pytest.raises(CF2Error, match="seed of the data"):
        training.load(path, link_dataset("grid", grid(), 1))


@pytest.mark.data
def test_cora_is_divided_and_nothing_is_lost() -> None:
    dataset = datasets.load("cora-links")
    check_links(_planetoid("Cora", None), dataset)
    assert dataset.data.num_nodes == 2708
    assert len(dataset.test_ids) == 2 * 527
