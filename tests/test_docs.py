"""The documentation is true: examples run, names and commands exist, links lead somewhere, figures are those that
were measured, and the site builds."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import cf2
from cf2 import options, web
from cf2.cli.commands import app
from cf2.methods import registry
from cf2.methods.contract import Method
from cf2.runs import engines
from cf2.samples import sources
from cf2.sets.search import _BUDGETS
from cf2.sets.tests import Criterion
from cf2.units import kinds as units
from reproduction import tables
from reproduction.training import RECIPES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SITE = sorted(DOCS.glob("*.md"))
PAGES = [*SITE, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]


def text_of(page: str | Path) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def module_of(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fill = module_of(DOCS / "fill.py")
figures = fill.figures


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in a language, "" for none."""
    return [str(b) for b in re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)]


def run(page: Path, numbers: slice, space: dict[str, Any]) -> None:
    """Run Python blocks of a page one after the other; a failure names the page and the line."""
    text = text_of(page)
    for block in blocks(page, "python")[numbers]:
        lines = text[: text.index(block)].count("\n")
        exec(compile("\n" * lines + block, str(page), "exec", dont_inherit=True), space)


# -- pages whose examples run ---------------------------------------------------------------------------------

WITH_TESTS_OF_THEIR_OWN = "getting-started counterfactuals gallery tasks mathematics patterns extend chemprop"
EXAMPLES = "README api cli datasets design index methods pyg report sets verdicts verified-search"


def test_every_python_block_is_run_by_a_test() -> None:
    run_by_tests = {*WITH_TESTS_OF_THEIR_OWN.split(), *EXAMPLES.split()}
    assert {page.stem for page in PAGES if blocks(page, "python")} == run_by_tests


@pytest.fixture
def quiet_figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MPLBACKEND", "agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_figures: None) -> dict[str, Any]:
    """An empty directory and no names: what a reader who pastes a page from its beginning has."""
    monkeypatch.chdir(tmp_path)
    return {"__name__": "example"}


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the page not wait for a browser, and Ray's work done here; their arguments are checked all the same."""
    called: list[str] = []

    def checked(real: Callable[..., Any], do: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            inspect.signature(real).bind(*given, **named)
            called.append(real.__name__)
            return do(*given)

        return call

    real = engines.explain_many
    monkeypatch.setattr(web, "serve", checked(web.serve, lambda path: None))
    monkeypatch.setattr(engines, "ready", checked(engines.ready, lambda engine: nullcontext()))
    monkeypatch.setattr(engines, "explain_many", checked(real, lambda request, keys: real(request, keys[:2])))
    return called


@pytest.mark.parametrize("name", EXAMPLES.split())
def test_examples_run(name: str, prepared: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    called = without_waiting(monkeypatch)
    run(next(page for page in PAGES if page.stem == name), slice(None), prepared)
    waited = {"report": ["serve"], "cli": ["ready", "explain_many", "explain_many"]}
    assert called == waited.get(name, [])


def test_getting_started_prints_what_it_says(quiet_figures: None) -> None:
    page = text_of("getting-started.md")
    assert page == fill.printed(page), "run: python docs/fill.py --run"


def test_the_gallery_makes_every_picture_that_it_shows(tmp_path: Path, quiet_figures: None) -> None:
    pytest.importorskip("rdkit")
    (tmp_path / "images").mkdir()
    fill.drawn(DOCS / "gallery.md", tmp_path)
    shown = set(re.findall(r"\(images/(gallery-[\w-]+\.png)\)", text_of("gallery.md")))
    assert shown == {path.name for path in (tmp_path / "images").iterdir()}


@pytest.mark.parametrize("path", fill.NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_show_what_they_hold(path: Path, quiet_figures: None) -> None:
    pytest.importorskip("rdkit")
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 200_000, "small outputs are kept"
    with torch.random.fork_rng(devices=[]):
        again = fill.executed(stored)
    assert fill.texts(again) == fill.texts(stored), "run: python docs/fill.py --run"
    assert [o for c in again["cells"] for o in c.get("outputs", ()) if "image/png" in o.get("data", {})]


def test_the_page_on_tasks_runs_and_says_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "tasks"}
    run(DOCS / "tasks.md", slice(None), space)
    # graphs
    assert space["hard"], "some trees have no passing set of edges"
    assert all(e.status == "impossible" and not (e.sufficient and e.necessary) for e in space["hard"])
    assert all(e.sufficient and e.necessary for e in space["both"])
    single = [e for e in space["why"] if e.size == 1]
    assert all(sorted(space["graphs"][e.key].x.argmax(1)[e.chosen("edges")[0]].tolist()) == [0, 1] for e in single)
    assert len(single) >= 3
    # links
    assert space["right"] > 0.99
    reasons, tag_of = space["reasons"], space["tag_of"]
    bought = {(int(u), int(i)) for u, i in space["buys"].t()}
    for e in reasons:
        user, item = e.key
        assert e.sufficient
        assert e.necessary
        assert (user, item) not in bought
        items = {int(i) for u, i in e.edges["user", "buys", "item"] if u == user}
        tagged = {int(i) for _, i in e.edges["tag", "of", "item"]}
        assert any(tag_of[i] == tag_of[item] for i in items & tagged), "a purchase with the same tag"
    assert set(reasons.types()["type"]) == {("user", "buys", "item"), ("tag", "of", "item")}
    assert space["enough"].summary()["size"] <= reasons.summary()["size"]
    assert (tmp_path / "recommendations.html").is_file()
    # numbers
    prices = space["prices"]
    for e in prices:
        assert abs(e.probabilities_only[0] - e.value) <= 1.0 < abs(e.probabilities_without[0] - e.value)
    assert space["share_of_dear_lines"](prices, space["dear"]) > 0.8
    assert space["some"].summary()["size"] > prices.summary()["size"], "a narrow tolerance asks for more"
    assert all(abs(e.probabilities_without[0] - e.value) > 2.0 and e.size == 1 for e in space["cheaper"])


def test_patterns_of_an_embedded_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "patterns"}
    run(DOCS / "patterns.md", slice(0, 1), space)
    assert space["patterns"][0].precision.value > 0.8
    assert space["patterns"][0].necessity.value > 0.8
    assert "What the model looks for" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "patterns.json").is_file()


@pytest.mark.data
def test_patterns_of_mutagens_are_those_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"__name__": "patterns", "cf2": cf2, "from_dataset": sources.from_dataset}
    run(DOCS / "patterns.md", slice(1, None), space)
    told = rows("patterns.md", "pattern")
    assert len(told) == len(space["mutagens"])
    for one, row in zip(space["mutagens"], told):
        assert row[0].startswith(f"`{one.pattern.text}`")
        assert row[1] == f"{one.support} of {one.answers}"
        names = ("coverage", "precision", "necessity", "chance", "sufficiency", "sufficiency_one")
        for name, cell in zip(names, row[2:], strict=True):
            assert [int(n) for n in re.findall(r"\d+", cell)] == pytest.approx(
                [100 * part for part in getattr(one, name)], abs=1.0
            )
    assert space["rules"].about["together"][0].value > 0.9
    assert space["best"].contained == 0
    assert "Prototype of class 0" in capsys.readouterr().out


def test_the_page_on_counterfactuals_runs_and_says_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rdkit")
    space: dict[str, Any] = {"__name__": "counterfactuals"}
    run(DOCS / "counterfactuals.md", slice(None), space)
    printed = capsys.readouterr().out
    assert 'question="counterfactual", edits=("remove", "add")' in printed
    why, model, aniline = space["why"], space["model"], space["aniline"]
    assert (why.status, why.default) == ("impossible", True)
    assert "tensor([1])" in printed  # the edited molecule is toxic
    for name in ("valid", "kept", "barred", "mine"):
        made = space[name]
        assert made.status == "found"
        edited = made.apply(aniline)
        assert int(model(edited.x, edited.edge_index).argmax(1)) == 1
    assert ("remove", (5, 6)) not in space["kept"].edits
    assert ("add", (0, 6)) not in space["barred"].edits
    assert {ends[0] for _, ends, *_ in space["valid"].edits} == {7, 8}  # the hydrogens of the nitrogen
    assert space["plain"].edits == [("add", (6, 8))]
    assert (space["dear"].size, {sort for sort, *_ in space["dear"].edits}) == (1, {"change"})
    assert all(e.status == "found" for e in (space["grouped"], space["joined"], space["nodes"]))
    assert all(e.status == "found" for e in space["found"])
    for e in space["by_itself"]:
        assert all(sort == "add" and e.key in ends for sort, ends in e.edits)


def test_a_common_factor_on_all_weights_cancels_without_self_loops(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    run(DOCS / "mathematics.md", slice(None), {})
    assert capsys.readouterr().out.splitlines() == ["False True", "True False"]


# -- the recipes ----------------------------------------------------------------------------------------------


@pytest.fixture
def recipe() -> Iterator[Callable[[str], dict[str, Any]]]:
    """Run the blocks of a recipe as one module, and then the tests that it holds; what it registers is forgotten."""
    known, kinds = dict(registry._METHODS), dict(units.KINDS)
    sys.modules["recipe"] = type(sys)("recipe")  # dataclasses look their module up

    def follow(name: str) -> dict[str, Any]:
        space: dict[str, Any] = {"__name__": "recipe"}
        run(DOCS / name, slice(None), space)
        tests = [value for key, value in space.items() if key.startswith("test_")]
        assert tests, f"{name} has a test"
        for test in tests:
            test()
        return space

    yield follow
    del sys.modules["recipe"]
    for registered, before in ((registry._METHODS, known), (units.KINDS, kinds)):
        registered.clear()
        registered.update(before)  # type: ignore[arg-type]


def test_the_recipes_run_and_their_tables_are_complete(recipe: Callable[[str], dict[str, Any]]) -> None:
    made = recipe("extend.md")
    assert cf2.methods.get("degree") is made["METHOD"]
    assert "stars" in units.KINDS
    listed = {name for row in rows("extend.md", "field") for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == set(inspect.signature(Method).parameters)
    members = {name for name in vars(Criterion) if not name.startswith("_")}
    assert members <= set(dir(made["AtLeast"]))
    assert {name for row in rows("extend.md", "member") for name in re.findall(r"`(\w+)[(`]", row[0])} == members


def test_recipes_that_are_diffs_touch_three_files_and_pass_their_tests(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    diffs = sorted((ROOT / "examples" / "extensions").glob("*.diff"))
    assert {f"../{diff.relative_to(ROOT)}" for diff in diffs} <= set(links(DOCS / "extend.md"))
    for diff in diffs:
        files = re.findall(r"^\+\+\+ b/(.*)$", diff.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(files) <= 3
        assert sum(file.startswith("tests/") for file in files) == 1
        subprocess.run(["git", "apply", "-C1", str(diff)], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert f"{len(diffs)} passed" in done.stdout, done.stdout


# -- names, commands and links --------------------------------------------------------------------------------

NAME = re.compile(r"(?<![\w./-])cf2(?:\.[A-Za-z_]\w*)+")
FILE = re.compile(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]*)`")
INVENTED = {"src/cf2/methods/degree.py", "tests/methods/test_degree.py", "cf2.runs.engines.threads"}


def exists(name: str) -> bool:
    """Whether a dotted name can be reached, through modules and then through attributes."""
    value: Any = cf2
    for number, part in enumerate(name.split(".")[1:], start=2):
        if hasattr(value, part):
            value = getattr(value, part)
            continue
        try:
            value = importlib.import_module(".".join(name.split(".")[:number]))
        except ImportError:
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_and_files_of_the_project_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not [name for name in sorted(set(NAME.findall(text)) - INVENTED) if not exists(name)]
    named = set(FILE.findall(text)) - INVENTED
    assert not [file for file in sorted(named) if not (ROOT / file).exists()]


def test_the_api_page_lists_what_is_public() -> None:
    listed = set(NAME.findall((DOCS / "api.md").read_text(encoding="utf-8")))
    assert {f"cf2.{name}" for name in cf2.__all__} <= listed
    for name in ("metrics", "datasets", "training", "pyg"):
        public = [one for one in getattr(cf2, name).__all__ if not one.isupper()]
        assert {f"cf2.{name}.{one}" for one in public} <= listed


def documented() -> list[tuple[str, str]]:
    """Every line that calls the program, in a shell block or in a sentence, with its page."""
    found = []
    for page in PAGES:
        shown = [block for language in ("", "sh", "bash", "console", "shell") for block in blocks(page, language)]
        lines = [line for block in shown for line in re.findall(r"^cf2 [a-z].*$", block, re.MULTILINE)]
        inline = re.findall(r"`(cf2 [a-z][^`…|\[]*)`", text_of(page))
        found += [(page.name, line) for line in lines + inline]
    return found


def test_every_documented_command_and_option_exists() -> None:
    known: dict[str, Any] = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    seen = set()
    for page, line in documented():
        _, name, *rest = shlex.split(line.partition(" #")[0].replace("…", ""))
        assert name in known, f"{page}: {line}"
        seen.add(name)
        flags = {flag for parameter in known[name].params for flag in (*parameter.opts, *parameter.secondary_opts)}
        asked = {word.partition("=")[0] for word in rest if word.startswith("-")}
        assert asked <= flags | {"--help", "-h"}, f"{page}: {line}"
    assert seen == set(known), "every command is documented"


def anchors(page: Path) -> set[str]:
    """The names that a link to a heading of a page may use."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,3} (.*)$", text, re.MULTILINE)
    labels = re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings} | set(labels)


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", text_of(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_resolve(page: Path) -> None:
    for target in links(page):
        if not target.startswith(("http://", "https://", "mailto:")):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def test_the_contents_name_every_page_once() -> None:
    contents = re.findall(r"```\{toctree\}\n(.*?)```", text_of("index.md"), re.DOTALL)
    listed = [line for block in contents for line in block.split() if (DOCS / f"{line}.md").is_file()]
    assert sorted(listed) == sorted(page.stem for page in SITE if page.stem != "index")


# -- for readers ----------------------------------------------------------------------------------------------

# What readers want, written down before the pages were arranged; where the answer is, and words of it.
READERS = {
    "explain one node of my GAT": ("getting-started.md", "cf2.explain(model, data, nodes="),
    "which molecules change class if I may only change atoms?": ("counterfactuals.md", 'edits="change"'),
    "what does impossible mean?": ("verdicts.md", "Proved that no set passes"),
    "cite it": ("index.md", "@inproceedings"),
    "use all cores": ("cli.md", "--engine processes --workers"),
    "explain a Chemprop model": ("chemprop.md", 'cf2.explain("model.pt"'),
    "judge my own explainer's masks": ("verdicts.md", "cf2.metrics.judge"),
    "explain links in a HeteroData graph": ("tasks.md", "edge_type="),
    "my graph has two million edges": ("cli.md", "A large graph needs no special option"),
    "open the what-if page for my run": ("report.md", "cf2 serve RUN"),
    "continue a run that was interrupted": ("cli.md", "repeat the command with `--resume`"),
    "where do I put the files of Mutag?": ("datasets.md", "`TUDataset/Mutagenicity/raw`"),
    "explain by features and not by edges": ("getting-started.md", 'units="features"'),
    "when does a regression count as unchanged?": ("tasks.md", "± `tolerance`"),
    "what may change in the next release?": ("api.md", "Until 1.0, a minor release may change"),
    "how surely does this set decide?": ("verdicts.md", "e.pns"),
    "use it in torch_geometric's Explainer": ("pyg.md", "CF2Explainer"),
    "what does λ stand for?": ("mathematics.md", "| λ, α, γ |"),
}


@pytest.mark.parametrize("task", READERS)
def test_readers_find_the_page_in_two_clicks(task: str) -> None:
    page, words = READERS[task]
    assert words in text_of(page)
    first = {target.partition("#")[0] for target in links(DOCS / "index.md")} | {"index.md"}
    pages = [DOCS / name for name in first if name.endswith(".md") and not name.startswith("http")]
    second = {target.partition("#")[0] for name in pages for target in links(name)}
    assert page in first | second


def test_the_documentation_is_short() -> None:
    words = [
        len(re.findall(r"\S*\w\S*", re.sub(r"<!--.*?-->", "", text_of(page)))) for page in [*SITE, ROOT / "README.md"]
    ]
    assert len(SITE) <= 20
    assert sum(words) <= 30_000


@pytest.mark.parametrize("page", SITE, ids=lambda page: page.stem)
def test_a_page_begins_with_a_picture_or_something_to_run(page: Path) -> None:
    screen = "\n".join(text_of(page).splitlines()[:30])
    assert re.search(r"!\[|^```(python|sh|bash|text)?$|\$\$", screen, re.MULTILINE)


def rows(page: str, first: str) -> list[list[str]]:
    """The rows of a table of a page whose first heading is `first`, as plain text."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |")) + 2
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return table


def test_the_table_of_efforts_is_that_of_the_search() -> None:
    for (effort, *cells), (name, b) in zip(rows("verified-search.md", "`effort`"), _BUDGETS.items(), strict=True):
        numbers = [int(number.replace(",", "")) for cell in cells for number in cell.split(" / ")]
        moves = [b.repairs, b.grown, b.exchanges, b.drops, b.adds, b.restarts]
        assert (effort, numbers) == (f"`{name}`", [*moves, b.proof, b.rounds, b.swaps])


def test_the_docstring_of_explain_says_what_a_spec_says() -> None:
    described = {name: meaning for name, (_, meaning) in fill.documented().items()}
    assert {name: described[name] for name in options.meanings()} == options.meanings()
    assert list(described) == list(inspect.signature(cf2.explain).parameters)


def test_the_help_of_the_command_says_what_a_spec_says() -> None:
    pytest.importorskip("docutils")
    text = " ".join(module_of(DOCS / "conf.py").help_pages()["explain"].split())
    for name, meaning in options.meanings().items():
        if name not in {"settings", "robust"}:  # the latter is deprecated and not shown
            assert f"--{name.replace('_', '-')}" in text
            assert meaning in text


# -- the design -----------------------------------------------------------------------------------------------

PACKAGE = ROOT / "src" / "cf2"


BUILT_IN = tuple(units.KINDS)  # recipes register further kinds


def layers() -> dict[str, list[str]]:
    """The packages of the design's table, in its order, and the files of each."""
    table = rows("design.md", "package")
    return {row[0].strip("`"): re.findall(r"`([\w/]+)`", row[1]) for row in table}


def files_of(package: str) -> set[str]:
    folder = PACKAGE / package
    if not folder.is_dir():
        return {package}
    files = {path.stem for path in folder.glob("*.py") if not path.name.startswith("_")}
    return files | {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}


def test_the_design_names_every_package_in_its_order_and_every_file() -> None:
    assert {name: set(files) for name, files in layers().items()} == {name: files_of(name) for name in layers()}
    there = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith(("_", "py.typed"))}
    assert set(layers()) == there - {"api"}
    assert list(layers()) == re.findall(r"^    (\w+)/? {2,}", cf2.__doc__ or "", re.MULTILINE)


def test_the_docstring_of_a_package_is_what_the_design_says_of_it() -> None:
    for name, _, said in rows("design.md", "package"):
        home = PACKAGE / name.strip("`")
        if home.is_dir():
            text = ast.get_docstring(ast.parse((home / "__init__.py").read_text(encoding="utf-8"))) or ""
            assert text.splitlines()[0] == said, name


def test_contributing_lists_the_packages_of_the_design() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert re.findall(r"^(\w+)", block, re.MULTILINE) == list(layers())


def test_the_design_lists_every_kind_of_unit() -> None:
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"`KINDS` holds the kinds: (.*?)\.\n", text)
    assert re.findall(r"`(\w+)`", listed) == list(BUILT_IN)


@pytest.mark.parametrize("package", [name for name in layers() if (PACKAGE / name).is_dir()])
def test_files_of_a_package_read_in_the_order_of_the_design(package: str) -> None:
    before: list[str] = []
    for file in (name.rstrip("/") for name in layers()[package]):
        path = (
            PACKAGE
            / package
            / (f"{file}.py" if (PACKAGE / package / f"{file}.py").is_file() else f"{file}/__init__.py")
        )
        assert {name for name in imported(path, f"cf2.{package}") if name != file} <= {*before}, file
        before.append(file)


def imported(path: Path, package: str) -> set[str]:
    """The modules of a package that a file imports when it is loaded."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found |= {alias.name for alias in node.names if alias.name in files_of(package.removeprefix("cf2."))}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            found.add(str(node.module).removeprefix(f"{package}.").split(".")[0])
    return found


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the documentation's tools are not installed")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path / "site")]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "site" / "mathematics.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert not re.search(r"""(src|href)=["']?https?://[^"' >]*\.(js|css)""", page), (
        "a page needs nothing from elsewhere"
    )
    assert "--resume" in (tmp_path / "site" / "cli.html").read_text(encoding="utf-8")


# -- pages say what was measured ------------------------------------------------------------------------------


@pytest.mark.parametrize("page", fill.PAGES, ids=lambda page: page.stem)
def test_pages_show_what_is_kept_and_declared(page: Path) -> None:
    assert text_of(page) == fill.filled(text_of(page)), "run: make figures"


def test_the_paper_is_shown_in_full() -> None:
    every = text_of("results.md") + fill.TABLES_PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^<!-- table (\w+) -->$", every, re.MULTILINE)
    assert set(tables.LAYOUTS) == set(shown) - {"about", "null", "judged", "saturation"}  # the last are benchmarks
    kept = fill.results()
    assert {"accuracy", "causal", "reached", "truth"} <= set(tables.present(kept))
    for name, recipe in kept["about"]["recipes"].items():
        assert recipe == dataclasses.asdict(RECIPES[name]), f"{name} has another recipe now: run cf2 reproduce"


#: Shares that were not measured: levels of intervals, and how data sets are split.
DECLARED = {"95", "97.5", "70", "20", "10", "80"}


@pytest.mark.parametrize("page", [*SITE, ROOT / "README.md"], ids=lambda page: page.stem)
def test_shares_and_times_stand_where_they_are_filled_in(page: Path) -> None:
    """A figure in prose stays when what it speaks of is measured again."""
    prose = re.sub(r"^```.*?^```$", "", fill.PART.sub("", text_of(page)), flags=re.MULTILINE | re.DOTALL)
    shares = set(re.findall(r"([\d.]*\d) ?%", prose))
    assert shares <= DECLARED
    assert not re.search(r"\d (ms|CPU|minutes)\b|\d times (faster|slower|larger|smaller)", prose)


@pytest.mark.parametrize("path", sorted(figures.MEASURED.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_kept_was_measured_on_the_models_that_ship(path: Path) -> None:
    about = figures.read(path.stem)["about"]
    assert {"date", "versions", "machine", "command"} <= set(about)
    assert about["versions"]["cf2"] == cf2.__version__
    assert about["shipped"] or about["trained"]
    for model, digest in about["shipped"].items():
        assert figures.digest(model) == digest, f"{model} is another model now: run {about['command']}"
    pages = "".join(text_of(page) for page in fill.PAGES)
    assert f"<!-- table {path.stem}" in pages
    assert f"`{about['command']}`" in pages
