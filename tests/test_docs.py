"""The documentation is true: its examples run, its commands exist, its links lead somewhere, and it builds."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import cf2.methods

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))])
SHELL = re.compile(r"^cf2 [a-z].*$", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in a language, "" for none."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [str(block) for block in found]


def run(page: Path, numbers: slice, space: dict[str, Any]) -> None:
    """Run Python blocks of a page one after the other; a failure names the page and the line."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page, "python")[numbers]:
        lines = text[: text.index(block)].count("\n")
        exec(compile("\n" * lines + block, str(page), "exec", dont_inherit=True), space)


@pytest.fixture
def quiet_figures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MPLBACKEND", "agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def test_the_tutorial_runs_and_says_what_it_says(quiet_figures: None, capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"__name__": "tutorial"}
    run(DOCS / "tutorial.md", slice(None), space)
    printed = capsys.readouterr().out
    assert "Did you mean 'epochs'?" in printed
    found, proved, theirs = space["found"], space["proved"], space["theirs"]
    assert all(e.sufficient and e.necessary and e.minimal for e in found)
    assert sum(bool(e.optimal) for e in proved) >= 6
    assert all(p.size <= f.size for p, f in zip(proved, found))
    assert theirs.summary()["fns"] < found.summary()["fns"]
    assert space["hard"], "some trees have no passing set of edges"
    assert all(e.status == "impossible" and not (e.sufficient and e.necessary) for e in space["hard"])
    assert all(e.sufficient and e.necessary for e in space["both"])
    single = [e for e in space["why"] if e.size == 1]
    assert all(
        sorted(space["graphs"][e.key].x.argmax(1)[e.unit_edges[e.selected][0]].tolist()) == [0, 1] for e in single
    )
    assert len(single) >= 3
    assert space["page"].is_file()
    assert len(space["again"]) == len(found)


def test_a_common_factor_on_all_weights_cancels_without_self_loops(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    run(DOCS / "mathematics.md", slice(None), {})
    assert capsys.readouterr().out.splitlines() == ["False True", "True False"]


def test_the_example_method_passes_its_own_test(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {"__name__": "degree"}
    page = DOCS / "add-a-method.md"
    sys.modules["degree"] = type(sys)("degree")  # dataclasses look their module up
    try:
        run(page, slice(0, 1), space)
        monkeypatch.setitem(cf2.methods.METHODS, "degree", space["METHOD"])
        run(page, slice(1, 2), space)
        space["test_the_busiest_edge_comes_first"]()
    finally:
        del sys.modules["degree"]


def commands() -> dict[str, Any]:
    import typer

    from cf2.cli import app

    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def documented() -> list[tuple[str, str]]:
    """Every line of a shell block that calls the program, with its page."""
    lines = [
        (page.name, line)
        for page in PAGES
        for language in ("", "sh", "bash", "console", "shell")
        for block in blocks(page, language)
        for line in SHELL.findall(block)
    ]
    inline = [
        (page.name, line)
        for page in PAGES
        for line in re.findall(r"`(cf2 [a-z][^`…|\[]*)`", page.read_text(encoding="utf-8"))
    ]
    return lines + inline


def test_every_documented_command_and_option_exists() -> None:
    known = commands()
    seen = set()
    for page, line in documented():
        _, name, *rest = shlex.split(line.partition(" #")[0].replace("…", ""))
        assert name in known, f"{page}: {line}"
        seen.add(name)
        options = {flag for parameter in known[name].params for flag in (*parameter.opts, *parameter.secondary_opts)}
        asked = {word.partition("=")[0] for word in rest if word.startswith("-")}
        assert asked <= options | {"--help", "-h"}, f"{page}: {line}"
    assert seen == set(known), "every command is documented"


def anchors(page: Path) -> set[str]:
    """The names that a link to a heading of a page may use."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,3} (.*)$", text, re.MULTILINE)
    labels = re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings} | set(labels)


def configuration() -> Any:
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_resolve(page: Path) -> None:
    optional = {f"{name}.md" for name in configuration().OPTIONAL}
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() and path in optional:
            continue
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def test_the_contents_name_every_page_once() -> None:
    listed = [
        line
        for block in re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL)
        for line in block.split()
        if (DOCS / f"{line}.md").is_file()
    ]
    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")


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
    from cf2.search import _BUDGETS

    wanted = [
        [
            f"`{name}`",
            str(b.repairs),
            str(b.grown),
            str(b.exchanges),
            f"{b.drops} / {b.adds}",
            str(b.restarts),
            f"{b.proof:,}",
            str(b.rounds),
        ]
        for name, b in _BUDGETS.items()
    ]
    assert rows("verified-search.md", "`effort`") == wanted


def test_the_table_of_options_is_that_of_explain() -> None:
    from cf2.api import explain, plan

    listed = {name for row in rows("api.md", "option") for name in re.findall(r"`(\w+)`", row[0])}
    known = {*inspect.signature(plan).parameters, *inspect.signature(explain).parameters}
    assert listed == known - {"model", "data", "nodes", "settings", "options"}


def test_the_reading_order_names_every_module() -> None:
    listed = {name.rstrip("/") for row in rows("design.md", "module") for name in re.findall(r"`([\w/]+)`", row[0])}
    there = {path.stem for path in (ROOT / "src" / "cf2").iterdir() if not path.name.startswith(("_", "py.typed"))}
    assert listed == there


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the documentation's tools are not installed")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path / "site")]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "site" / "mathematics.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert not re.search(r"""(src|href)=["']?https?://[^"' >]*\.(js|css)""", page), (
        "a page needs nothing from elsewhere"
    )
    assert "--resume" in (tmp_path / "site" / "cli.html").read_text(encoding="utf-8")
