"""Errors of the command line: one sentence that names the place, and the whole traceback where it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands_here import COMMANDS, cf2

from cf2.cli import options

OWN = """
import torch

def helper():
    return {}["no such key"]

def raises():
    return helper()

def deep():
    return torch.ones(2, 3) @ torch.ones(2, 3)

def leaves():
    raise SystemExit(7)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of the user's that no other test has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CF2_DEBUG", raising=False)
    name = f"own_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / f"{name}_typo.py").write_text("x = 1\n\ndef f(:\n    pass\n")
    return name


# -- the user's own function --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "line", "what"),
    [
        ("{}:deep", "{}.py:11", "RuntimeError: mat1 and mat2 shapes"),
        ("{}:leaves", "{}.py:14", "SystemExit: 7"),
        ("{}_typo:f", "{}_typo.py:3", "SyntaxError"),
    ],
)
def test_an_error_of_the_users_function_is_named_with_its_file_and_line(
    own: str, function: str, line: str, what: str
) -> None:
    words = ["explain", "--data", function.format(own), "--out", "run"]
    done = cf2(*words)
    assert done.returncode == 1
    assert what in done.said
    assert f"{Path.cwd() / line.format(own)})" in done.said
    assert "Add --debug" in done.said
    assert "Traceback" not in done.stderr
    assert done.said.count("Error:") == done.stderr.count("Error:")
    debug = cf2(*words, "--debug")
    assert debug.returncode == 1
    assert "Traceback (most recent call last)" in debug.stderr
    assert line.format(own).replace(":", '", line ') in debug.stderr
    assert "direct cause of the following exception" in debug.stderr


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_variable_shows_the_traceback_too(
    own: str, monkeypatch: pytest.MonkeyPatch, value: str, shown: bool
) -> None:
    monkeypatch.setenv("CF2_DEBUG", value)
    done = cf2("explain", "--data", f"{own}:raises", "--out", "run")
    assert ('return {}["no such key"]' in done.stderr) is shown


# -- anything else ------------------------------------------------------------------------------------------------


def test_ids_with_spaces_between_get_the_way_to_write_them() -> None:
    done = cf2("explain", "ba-shapes", "--nodes", "300", "301")
    assert done.returncode == 2
    assert "--nodes 3,17" in done.said


def test_every_command_takes_debug() -> None:
    for command in COMMANDS:
        assert "--debug" in cf2(command, "--help").stdout, command
    assert "--debug" in cf2("--help").stdout


@pytest.mark.parametrize("words", [["methods"], ["methods", "--debug"], ["--debug", "methods"]])
def test_a_fault_of_ours_is_said_to_be_one(own: str, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    def broken() -> list[str]:
        return [][0]

    monkeypatch.setattr("cf2.methods.registry.names", broken)
    monkeypatch.setattr("cf2.cli.terminal.own_line", lambda error: None)  # this test is not a part of cf2
    done = cf2(*words)
    assert done.returncode == 1
    assert not done.stdout
    assert "This is a bug in cf2: IndexError: list index out of range." in done.said
    assert ("Traceback" in done.stderr) == ("--debug" in words)
    assert ("Add --debug" in done.said) == ("--debug" not in words)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(13, "Permission denied", "/x"), "Expected to use '/x', but got: Permission denied."),
        (OSError(28, "No space left on device"), "Expected to read or write, but got: No space left on device."),
        (MemoryError(), "Expected enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 TB"), "Expected enough memory"),
        (KeyError("x"), "Expected your own code to run without an error, but got KeyError: 'x' ("),
    ],
)
def test_what_is_not_ours_is_not_called_a_fault(monkeypatch: pytest.MonkeyPatch, error: Exception, says: str) -> None:
    def broken() -> list[str]:
        raise error

    monkeypatch.setattr("cf2.methods.registry.names", broken)  # this file stands for a user's own code
    done = cf2("methods")
    assert done.returncode == 1
    assert says in done.said
    assert "bug in cf2" not in done.said


def test_a_reader_that_goes_away_is_no_error() -> None:
    words = f"{sys.executable} -m cf2 --help"
    done = subprocess.run(f"{words} | head -c 1", shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert not done.returncode


# -- ids and settings ---------------------------------------------------------------------------------------------


def test_ids_are_numbers_and_ranges() -> None:
    assert options.parse_ids("3,17,40-44") == [3, 17, 40, 41, 42, 43, 44]
    assert options.parse_ids(" 5 , 1-2") == [5, 1, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("310-300", "Expected a range from small to large, such as 300-310, but got '310-300'."),
        ("test_mask", "Without --nodes, the test nodes or graphs are explained."),
        ("-5", "Expected ids such as 3,17,40-44, but got '-5'."),
        ("²", "Expected ids such as 3,17,40-44"),
        ("0-99999999999", "Expected at most 10,000,000 ids"),
        ("1" * 5000, "Expected ids such as 3,17,40-44"),
    ],
)
def test_ids_that_cannot_be_are_answered_with_a_sentence_that_helps(text: str, says: str, tmp_path: Path) -> None:
    done = cf2("explain", "ba-shapes", "--out", tmp_path / "run", "--nodes", text)
    assert done.returncode == 2
    assert says in done.said
    assert len(done.said) < 600


def test_a_setting_is_json_or_a_word() -> None:
    for text, value in {"100": 100, "0.5": 0.5, "null": None, "integrated": "integrated", "b=c": "b=c"}.items():
        assert options.parse_setting(f"k={text}") == ("k", value)
    for text in ("[" * 100_000, "1" * 5000, "[1,"):
        assert options.parse_setting(f"k={text}") == ("k", text)


@pytest.mark.parametrize("kind", ["pipe", "directory", "loop"])
def test_a_report_is_not_written_to_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    {"pipe": os.mkfifo, "directory": os.mkdir, "loop": lambda p: os.symlink(p, p)}[kind](path)  # type: ignore[operator]
    done = cf2("report", tmp_path, "--out", path)
    assert done.returncode == 2
    assert "Expected the path of a file" in done.said
