"""Every example runs, and prints what it promises."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the example prints, run as a script is run."""
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_every_example_is_tested() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {"beside_gnnexplainer", "node_classifier", "graph_classifier", "torch_geometric_dropin"}


def test_node_classifier(capsys: pytest.CaptureFixture[str]) -> None:
    out = run("node_classifier", capsys)
    assert "accuracy 1.00" in out
    assert "necessary 100%, sufficient 100%" in out
    assert out.count("proved smallest: True") == 3
    for leaf in (16, 18, 20):  # every edge of the explanation touches the leaf or lies on its triangle
        (line,) = re.findall(rf"node {leaf} is in class 1 because of \d of \d edges: (.*)", out)
        triangle = {f"{leaf}-{2 * leaf + 1}", f"{leaf}-{2 * leaf + 2}", f"{2 * leaf + 1}-{2 * leaf + 2}"}
        assert triangle <= set(line.split(", "))


def test_graph_classifier(capsys: pytest.CaptureFixture[str]) -> None:
    out = run("graph_classifier", capsys)
    assert "accuracy 1.00" in out
    assert len(re.findall(r"graph \d: 3 of \d+ edges, 2 of them in the group", out)) == 5
    assert len(re.findall(r"graph \d: edges \d+-\d+; atoms \d+ \(kind 1\)\n", out)) == 5
    assert re.search(r"cf2 +100% +100%", out)
    assert "Sufficient: with only these 3 edges" in out


def test_torch_geometric_dropin(capsys: pytest.CaptureFixture[str]) -> None:
    out = run("torch_geometric_dropin", capsys)
    assert re.search(r"CF2Explainer +6 +1\.0 +0\.0", out)
    assert re.search(r"CFGNNExplainer +2 +1\.0", out)
    assert "'sufficient': True, 'necessary': True, 'minimal': True" in out
    assert out.count("fidelity (1.0, 0.0)") == 3


@pytest.mark.slow
@pytest.mark.data
def test_beside_gnnexplainer(capsys: pytest.CaptureFixture[str]) -> None:
    out = run("beside_gnnexplainer", capsys)
    assert "cf2: sufficient 7, necessary 7, both 7 of 7" in out
    assert re.search(r"GNNExplainer, 200 epochs: sufficient \d, necessary \d, both \d of 7", out)
