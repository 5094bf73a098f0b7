"""`cf2 explain`: every option of a Spec by its own name, the user's own data, and methods that need more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands_here import Done, cf2

from cf2 import options as specs
from cf2.options import Spec
from cf2.results.explanations import Explanations
from cf2.runs.store import Store
from toys import same_results

MINE = """
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GIN, global_add_pool


def ring(nodes, directed=False):
    at = torch.arange(nodes)
    ahead = torch.stack([at, (at + 1) % nodes])
    edge_index = ahead if directed else torch.cat([ahead, ahead.flip(0)], 1)
    return Data(x=torch.randn(nodes, 3), edge_index=edge_index)


def make():
    torch.manual_seed(0)
    return GCN(3, 8, 2, 2), ring(12)


def coloured():
    model, data = make()
    data.x = torch.eye(3)[torch.arange(12) % 3]
    data.edge_ring = torch.arange(24) % 3
    data.bond = torch.ones(24, dtype=torch.long)
    return model, data


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gnn, self.head = GIN(3, 8, 2), torch.nn.Linear(8, 2)

    def forward(self, x, edge_index, batch=None):
        return self.head(global_add_pool(self.gnn(x, edge_index), batch))


def graphs(directed=False):
    torch.manual_seed(0)
    made = [ring(nodes, directed) for nodes in range(4, 10)]
    for graph in made:
        graph.truth = torch.arange(graph.edge_index.size(1)) % graph.num_nodes == 0
    return Pooled(), made


def directed():
    return graphs(True)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own module in the current directory, under a name that no other test uses."""
    (tmp_path / f"mine_{abs(hash(tmp_path))}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own(function: str, *words: object, out: str = "run") -> Done:
    (module,) = Path.cwd().glob("mine_*.py")
    return cf2("explain", "--data", f"{module.stem}:{function}", "--out", out, "--json", *words)


def found(out: str = "run", method: str | None = None) -> Explanations:
    return Store.open(out).explanations(method)


# -- every option, written down once --------------------------------------------------------------------------

COUNTER = ["--question", "counterfactual"]
GIVEN: dict[str, tuple[list[str], Any]] = {
    "method": (["--method", "gradient"], "gradient"),
    "units": (["--units", "features,edges"], ["features", "edges"]),
    "question": (["--question", "counterfactual"], "counterfactual"),
    "target": (["--target", "1"], 1),
    "search": (["--search", "--method", "gradient"], True),
    "seed": (["--seed", "3"], 3),
    "output": (["--output", "logits"], "logits"),
    "level": (["--level", "node"], "node"),
    "directed": (["--directed"], True),
    "masking": (["--masking", "messages"], "messages"),
    "device": (["--device", "cpu"], "cpu"),
    "max_units": (["--max-units", "9"], 9),
    "reduce": (["--max-units", "1", "--reduce", "gradient"], "gradient"),
    "settings": (["--method", "gradient", "--set", "k=2", "--set", "kind=integrated"], None),
    "edits": ([*COUNTER, "--edits", "remove,add"], ["remove", "add"]),
    "candidates": ([*COUNTER, "--edits", "add", "--candidates", "0:4,4:6"], [[None, [[0, 4], [4, 6]]]]),
    "keep": (["--keep", "0:1"], [[None, [[0, 1]]]]),
    "forbid": (["--forbid", "0:1"], [[None, [[0, 1]]]]),
    "groups": (["--groups", "edge_ring"], "edge_ring"),
    "connected": (["--connected"], True),
    "valid": ([*COUNTER, "--valid", "molecule", "--atoms", "C,N,O"], "molecule"),
    "charges": ([*COUNTER, "--valid", "molecule", "--atoms", "C,N,O", "--charges"], True),
    "alternatives": (["--alternatives", "2"], 2),
    "contexts": (["--contexts", "16"], 16),
    "contexts_add": (["--contexts-add", "2"], 2),
    "surely": (["--surely", "0.5"], 0.5),
    "costs": ([*COUNTER, "--edits", "remove,add", "--costs", "add=2"], [["add", 2.0]]),
    "one_hot": ([*COUNTER, "--edits", "change", "--one-hot", "0-2"], [[0, 1, 2]]),
    "added_attributes": ([*COUNTER, "--edits", "add", "--added-attributes", '{"edge_ring": 1}'], {"edge_ring": 1}),
    "atoms": (["--atoms", "C,N,O"], ["C", "N", "O"]),
    "tolerance": (["--tolerance", "0.5", "--output", "regression", "--target", "0"], 0.5),
    "reverse": (["--reverse", "none"], "none"),
    "sizes": (["--method", "gradient", "--sizes", "2"], 2),
}


# Given in `test_tasks_command.py`, and read as other options.
ELSEWHERE = {"node_type", "edge_type", "leave_out_pair", "robust"}


@pytest.mark.parametrize("option", [option.name for option in specs.options() if option.name not in ELSEWHERE])
def test_every_option_is_given_by_its_own_name_and_arrives_in_the_manifest(option: str) -> None:
    words, value = GIVEN[option]
    done = own("coloured", "--nodes", "0,4", *words)
    assert done.returncode == 0, done.said
    (job,) = json.loads(Path("run/manifest.json").read_text())["jobs"]
    if option == "settings":
        assert (job["settings"]["k"], job["settings"]["kind"]) == (2, "integrated")
    else:
        assert job[option] == value != Spec().to_json()[option]
        assert f"--{option.replace('_', '-')}" in words


def test_without_a_word_every_option_is_the_default_of_a_spec() -> None:
    assert own("make", "--nodes", "0").returncode == 0
    (job,) = Store.open("run").jobs()
    for option in specs.options():
        if option.name != "settings":
            default = 32 if option.name == "contexts" else getattr(Spec(), option.name)  # Python measures none
            assert getattr(job, option.name) == default
    assert all(e.contexts for e in Store.open("run").explanations())
    assert own("make", "--nodes", "0", "--surely", "0.5", "--out", "sure").returncode == 0
    assert Store.open("sure").jobs()[0].contexts == 0  # as many as a sure set is judged by


# -- several methods ------------------------------------------------------------------------------------------


def test_settings_go_to_the_methods_that_know_them() -> None:
    methods = ["--method", "gradient", "--method", "cf2", "--method", "random"]
    assert own("make", "--nodes", "0,4", *methods, "--set", "k=2", "--set", "effort=quick").returncode == 0
    jobs = {job.method: job.settings for job in Store.open("run").jobs()}
    assert (jobs["gradient"]["k"], jobs["random"]["k"], jobs["cf2"]["effort"]) == (2, 2, "quick")
    assert "k" not in jobs["cf2"]
    assert own("make", "--nodes", "0", *methods, "--set", "kay=2", out="other").returncode == 1


def test_what_is_too_large_is_named_and_the_rest_is_explained() -> None:
    words = ["explain", "ba-shapes", "--nodes", "300-303,420", "--method", "gradient", "--set", "k=3"]
    refused = cf2(*words, "--max-units", "200", "--json", "--out", "json").json["rows"][0]["refused"]
    assert refused
    assert len(refused) < 5
    said = cf2(*words, "--max-units", "200", "--out", "run")
    assert said.returncode == 0
    assert f"{len(refused)} of 5 were not explained" in said.said
    assert f"--max-units 200: {', '.join(map(str, refused))}. Add --reduce gradient" in said.said
    reduced = cf2(*words, "--max-units", "200", "--reduce", "gradient", "--json", "--out", "reduced")
    assert "refused" not in reduced.json["rows"][0]


# -- the user's own data --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "keys"), [("make", "0,4"), ("graphs", "0-1")])
@pytest.mark.parametrize("method", ["gem", "pgexplainer"])
def test_a_method_that_is_trained_first_is_trained_on_the_rest_of_the_users_data(
    function: str, keys: str, method: str
) -> None:
    words = ["--nodes", keys, "--method", method, "--set", "k=2", "--set", "epochs=2"]
    (row,) = own(function, *words).json["rows"]
    assert (row["method"], row["n"], row["size"]) == (method, 2, 2.0)
    assert Path(f"run/trained-{method}.safetensors").is_file()


# -- truth ----------------------------------------------------------------------------------------------------


def test_truth_is_given_with_the_runs_own_options() -> None:
    words = ["explain", "tree-cycles", "--nodes", "511-514", "--method", "truth", "--method", "gradient", "--json"]
    plain = cf2(*words, "--out", "plain").json["rows"][0]
    assert (plain["method"], plain["size"], plain["f1"]) == ("truth", 6.0, 1.0)
    directed = cf2(*words, "--out", "directed", "--directed").json["rows"][0]
    assert (directed["size"], directed["f1"]) == (10.0, 1.0)  # two units an edge, but for those that only lead away
    assert all(e.directed for e in found("directed", "truth"))
    most = sorted(e.num_units for e in found("plain", "truth"))[1]
    limited = cf2(*words, "--out", "limited", "--max-units", most).json["rows"]
    assert limited[0]["refused"] == limited[1]["refused"]  # the same instances are too large for both methods
    assert 0 < len(limited[0]["refused"]) < 4
    reduced = cf2(*words, "--out", "reduced", "--max-units", 3, "--reduce", "gradient")
    assert reduced.json["rows"][0]["size"] <= 3


def test_truth_of_the_users_own_graphs_reads_edges_as_the_run_does() -> None:
    assert own("directed", "--method", "truth").json["rows"][0]["f1"] == 1.0
    assert [e.chosen("edges").tolist() for e in found()] == [[[0, 1]]] * 6
    assert all(e.directed for e in found())
    assert own("directed", "--method", "truth", "--no-directed", out="undirected").json["rows"][0]["f1"] == 1.0
    assert not any(e.directed for e in found("undirected"))


# -- several questions ----------------------------------------------------------------------------------------


def test_several_questions_are_a_row_each(here: Path) -> None:
    words = ("--question", "why,counterfactual", "--edits", "remove,add", "--costs", "add=2", "--nodes", "0-3")
    done = own("make", *words, "--method", "cf2", "--method", "gradient", "--set", "k=2")
    rows = done.json["rows"]
    labels = ["cf2", "cf2, counterfactual", "gradient", "gradient, counterfactual"]
    assert [row["label"] for row in rows] == labels
    assert [(row["method"], row["question"]) for row in rows[:2]] == [("cf2", "why"), ("cf2", "counterfactual")]
    jobs = Store.open("run").jobs()
    assert [(job.question, job.edits, job.costs) for job in jobs[:2]] == [
        ("why", ("remove",), ()),
        ("counterfactual", ("remove", "add"), (("add", 2.0),)),
    ]
    again = own("make", *words, "--method", "cf2", "--method", "gradient", "--set", "k=2", "--resume").json
    assert [row["size"] for row in again["rows"]] == [row["size"] for row in rows]
    scored = cf2("evaluate", "run", "--json").json
    assert [row["label"] for row in scored["methods"]] == labels
    assert len(cf2("evaluate", "run", "--method", "cf2", "--json").json["methods"]) == 2
    assert "counterfactual" in cf2("evaluate", "run").stdout.replace("\n", " ")
    cf2("report", "run", "-o", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert all(label in page for label in labels)
    assert cf2("check", "run", "--trust", "--json").json["problems"] == []
    from cf2.web.app import explanations

    assert list(explanations(Store.open("run"))) == labels


def test_one_question_is_called_as_before(here: Path) -> None:
    (row,) = own("make", "--question", "counterfactual", "--nodes", "0-3").json["rows"]
    assert (row["label"], row["question"]) == ("cf2", "counterfactual")
    assert "Did you mean 'counterfactual'" in own("make", "--question", "why,counterfactua", out="other").said


def test_counterfactual_is_explain_with_that_question(here: Path) -> None:
    (module,) = Path.cwd().glob("mine_*.py")
    words = ("--nodes", "0-3", "--edits", "remove,change", "--json")
    asked = cf2("counterfactual", "--data", f"{module.stem}:make", "--to", "1", "--out", "verb", *words)
    assert asked.json["rows"][0]["question"] == "counterfactual"
    own("make", "--question", "counterfactual", "--target", "1", *words[:-1])
    assert same_results(list(found("verb")), list(found()))
    assert Store.open("verb").jobs() == Store.open("run").jobs()


def test_predictions_of_the_default_class_are_counted_and_the_question_that_helps_is_named(here: Path) -> None:
    (row,) = own("graphs").json["rows"]
    found_here = [e for e in found() if e.default]
    assert row["default"] == len(found_here)
    assert row["default"] > 0
    (module,) = Path.cwd().glob("mine_*.py")
    said = cf2("explain", "--data", f"{module.stem}:graphs", "--out", "other").stdout
    assert f"{row['default']} of {row['n']} predictions " in said
    assert "--question counterfactual --edits remove,add" in said


def test_a_table_shows_only_the_shares_that_a_question_asks_for() -> None:
    from cf2.cli.terminal import COMPARED, compared

    row = {"method": "cf2", "pn": 0.5, "ps": 0.25, "fns": 1 / 3, "size": 2.0, "evaluations": 9.0, "seconds": 0.1}
    shown = {
        question: dict(zip(COMPARED, compared({**row, "question": question, "found": 0.75})))
        for question in ("why", "factual", "counterfactual")
    }
    assert [shown["why"][name] for name in ("found", "PN", "PS", "F_NS")] == ["75.0", "50.0", "25.0", "33.3"]
    assert [shown["factual"][name] for name in ("found", "PN", "PS", "F_NS")] == ["75.0", "–", "25.0", "–"]
    assert [shown["counterfactual"][name] for name in ("found", "PN", "PS", "F_NS")] == ["75.0", "50.0", "–", "–"]
