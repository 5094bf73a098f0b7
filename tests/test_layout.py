"""The layout that the design promises: imports point upwards, what is public is documented, outputs are compared in
one place, and a method is named in its own file alone."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cf2
from cf2.methods import registry

ROOT = Path(cf2.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TREES = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
FREE = {"__init__.py", "__main__.py", "api.py"}  # these may import everything, and nothing imports them

# -- imports --------------------------------------------------------------------------------------------------

ORDER = [
    "errors",
    "options",
    "storage",
    "sets",
    "graphs",
    "units",
    "models",
    "methods",
    "results",
    "runs",
    "report",
    "patterns",
    "samples",
    "pyg",
    "web",
    "cli",
]
# What an explanation shows of itself is drawn further down, and its patterns are tested by running the model there;
# these imports wait inside of functions.
DOWNWARDS = {
    ("report/html.py", "patterns"),
    ("results/explanation.py", "report"),
    ("results/explanations.py", "report"),
    ("results/explanations.py", "patterns"),
    ("results/metrics.py", "api"),  # `judge` asks for verdicts on sets of others
}


def imported(tree: ast.AST) -> Iterator[str]:
    """The packages and modules of cf2 that code imports, wherever it does; names of cf2 itself are no module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "cf2":
            yield from (alias.name for alias in node.names if alias.name != "__version__")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cf2."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("cf2."))


def package_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def wrong_imports(file: str, nodes: ast.AST) -> set[tuple[str, str]]:
    above = ORDER[: ORDER.index(package_of(file)) + 1]
    return {(file, name) for name in imported(nodes) if name not in above}


def test_every_package_has_its_place() -> None:
    assert {package_of(file) for file in TREES if file not in FREE} == set(ORDER)


def test_imports_point_upwards() -> None:
    wrong = set().union(*(wrong_imports(file, tree) for file, tree in TREES.items() if file not in FREE))
    assert wrong == DOWNWARDS


class OutsideOfFunctions(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        return None

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def test_what_points_downwards_waits_inside_of_functions() -> None:
    for file, _ in DOWNWARDS:
        outside = OutsideOfFunctions().visit(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        assert wrong_imports(file, outside) == set()


# -- documentation --------------------------------------------------------------------------------------------


def public() -> Iterator[tuple[str, Any]]:
    """Every function, class and method that a user can reach by a public name."""
    homes = {"cf2": cf2, **{f"cf2.{n}": getattr(cf2, n) for n in ("metrics", "datasets", "training", "pyg")}}
    for home, module in homes.items():
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.isfunction(item) or inspect.isclass(item):
                yield f"{home}.{name}", item
            if inspect.isclass(item):
                for member, value in vars(item).items():
                    if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                        yield f"{home}.{name}.{member}", value


PUBLIC = dict(public())


def parameters(item: Any) -> list[str]:
    if isinstance(item, property):
        return []
    return [name for name in inspect.signature(item).parameters if name not in ("self", "cls")]


def inherited(name: str) -> bool:
    """Whether a method, or how a class is made, is defined by a base class of another library."""
    home, _, member = name.rpartition(".")
    owner = PUBLIC.get(home)
    if owner is None:
        return inspect.isclass(PUBLIC[name]) and "__init__" not in vars(PUBLIC[name])
    return any(hasattr(base, member) for base in owner.__mro__[1:])


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_is_documented(name: str) -> None:
    """One sentence; and a section that names every parameter where there are more than three."""
    item = PUBLIC[name]
    said = (item.fget if isinstance(item, property) else item).__doc__ or ""
    assert len(said.split()) >= 3, f"{name} has no docstring"
    assert not said.startswith(f"{name.rpartition('.')[2]}("), f"the docstring of {name} is the one that Python made"
    given = parameters(item)
    if len(given) <= 3 or inherited(name):
        return
    section = re.search(r"^ *(Parameters|Attributes)\n *-+\n(.*)", said, re.MULTILINE | re.DOTALL)
    elsewhere = re.search(r"parameters are those of `[\w.]+`", said)
    assert section or elsewhere, f"{name} has {len(given)} parameters and no section for them"
    if section:
        missing = [parameter for parameter in given if not re.search(rf"\b{parameter}\b", section[2])]
        assert not missing, f"{name} does not say what {missing} are"


# -- typed graphs: one flat graph everywhere but at the two ends ------------------------------------------------


TYPE_WORDS = re.compile(
    r"[Hh]etero|node_type|edge_type|(?<!settings)(?<!state)(?<!to)(?<!from)_dict\b|\bTypes\b|\b[Tt]yped\b"
)
FLAT = ("units/packs.py", "models/predictor.py", "models/oracle.py", "sets/", "methods/", "runs/")
# These read the user's data or name its parts; what they pass on is flat.
READ_TYPES = {"runs/check.py", "runs/source.py", "runs/session.py", "runs/answers.py"}


def test_what_packs_searches_and_runs_knows_no_types() -> None:
    """A typed graph is turned into dictionaries by its adapter alone."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
    asked = {file for file in texts if file.startswith(FLAT)}
    assert {file for file in asked if TYPE_WORDS.search(texts[file])} == READ_TYPES
    for place in ("sets/search.py", "models/oracle.py", "runs/engines"):
        assert any(file.startswith(place) for file in asked), "the places that the rule is about have moved"


# -- one place for what is compared, one file for what is special about a method --------------------------------

# Where answers are searched, judged and counted, the largest of some numbers is taken for these reasons only.
COMPARING = ("sets/", "models/", "methods/", "runs/", "results/metrics.py")
ARGMAX = {
    "sets/tests.py": "the criterion itself",
    "sets/trials.py": "the first of units that rank alike",
    "sets/moves.py": "the test that was failed most often",
    "models/outputs.py": "the predicted class, once; the worst row, in an error",
    "models/chemprop.py": "the class of an edited molecule with features of its own",
    "methods/subgraphx.py": "the largest connected part",
}


def test_outputs_are_compared_in_one_place() -> None:
    using = {file for file, tree in TREES.items() if file.startswith(COMPARING) and "argmax" in identifiers(tree)}
    assert "sets/tests.py" in using
    assert using <= set(ARGMAX), "Ask a criterion, or say here why not."


def identifiers(tree: ast.AST) -> set[str]:
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


# The methods that a file names, and why it has to.
NAMED = {
    "results/metrics.py": {"random", "truth"},  # `judge`: the keys, and sets that are given
    "pyg/explainers.py": {"cf2-relaxed", "cf-gnnexplainer"},  # classes that are named after a method
}
WORDS = {"cf2", "gradient", "random", "truth"}  # names that mean other things, too: these count where `method` is said


def named(tree: ast.AST) -> set[str]:
    """The methods that code names by a name that nothing else has, or compares with or gives as a method."""
    found = texts(tree) - WORDS
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("method", "methods"):
            found |= texts(node.value)
        elif isinstance(node, ast.Compare) and re.search(r"\bmethod\b(?!\)?\.)|method\.name", ast.unparse(node)):
            found |= texts(node)
    return found & {*registry.names()} - {"cf2"}  # the default


def texts(node: ast.AST) -> set[Any]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_nothing_but_its_own_file_names_a_method() -> None:
    for file, tree in TREES.items():
        if not file.startswith("methods/"):
            assert named(tree) <= NAMED.get(file, set()), f"{file}: ask `Method` for what is special about it."
