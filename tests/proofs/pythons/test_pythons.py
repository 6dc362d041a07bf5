"""The interpreters are found, what is to be tried is chosen, and what came of it is a table."""

from __future__ import annotations

import sys

import pytest

from efo_service.exit_codes import Exit
from proofs.pythons import __main__ as command
from proofs.pythons.interpreters import find, full_version, supported
from proofs.release.commands import CheckError

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PROJECT = {"project": {"classifiers": ["Programming Language :: Python :: 3.11", "Typing :: Typed"]}}
ROW = {"version": "3.13.1", "modules": 5, "names": 1, "tests": 2_500, "wrong": []}


def interpreter(path, version):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def test_the_classifiers_name_the_versions():
    assert supported(PROJECT) == ("3.11",)


def test_an_interpreter_is_asked_for_its_version_and_must_have_what_efo_needs(tmp_path):
    assert full_version(sys.executable) == ".".join(map(str, sys.version_info[:3]))
    assert full_version(tmp_path / "none") is None
    broken = interpreter(tmp_path / "python", "3.11.1; exit 1")
    assert full_version(broken) is None


def test_interpreters_are_found_where_they_are_named_on_path_and_of_pyenv(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    named = interpreter(tmp_path / "named", "3.11.9")
    other = interpreter(tmp_path / "bin/python3.12", "3.12.4")
    installed = interpreter(tmp_path / ".pyenv/versions/3.13.0/bin/python3.13", "3.13.0")
    interpreter(tmp_path / "bin/python3.15", "3.1.5")  # another version than its name
    found = find(["3.11", "3.12", "3.13", "3.15"], [named])
    assert found == {"3.11": named, "3.12": other, "3.13": installed}


def test_all_versions_are_tried_or_those_that_are_named():
    versions = ["3.10", VERSION]
    assert command.chosen([], versions) == (versions, [])
    assert command.chosen(["3.10"], versions) == (["3.10"], [])
    wanted, paths = command.chosen([sys.executable], versions)
    assert (wanted, [str(path) for path in paths]) == ([VERSION], [sys.executable])


def test_the_table_says_what_was_not_tried_and_what_was_wrong_and_keeps_the_other_rows():
    bad = {**ROW, "version": "3.14.0", "wrong": ["a", "b"]}
    lines = command.table(
        {"3.13": ROW, "3.14": bad}, ["3.11", "3.12", "3.13", "3.14"], "| 3.11 | 3.11.7 | 5 | 9 |\n"
    ).splitlines()
    assert lines[2:] == [
        "| 3.11 | 3.11.7 | 5 | 9 |",
        "| 3.12 | not tried | | |",
        "| 3.13 | 3.13.1 | 5 | 2,500 |",
        "| 3.14 | 3.14.0, 2 wrong | 5 | 2,500 |",
    ]


def install_nothing(monkeypatch, tmp_path, run, looked):
    python = tmp_path / "bin/python"
    (tmp_path / "lib/python3.1/site-packages").mkdir(parents=True)
    monkeypatch.setattr(command, "empty_environment", lambda *_: python)
    monkeypatch.setattr(command, "install", lambda *_: None)
    monkeypatch.setattr(command, "_look", lambda _: {"modules": 5, "names": 1, "wrong": [], "missing": looked})
    monkeypatch.setattr(command, "full_version", lambda _: "3.13.1")
    monkeypatch.setattr(command, "run", run)
    return python


def test_what_fails_of_an_interpreter_is_a_sentence_of_its_row(tmp_path, monkeypatch):
    def run(words, **_options):
        if "pytest" in str(words[0]):
            raise CheckError("pytest ended with 1: FAILED test_a")
        return str(tmp_path / "lib/python3.1/site-packages/efo/__init__.py")

    python = install_nothing(monkeypatch, tmp_path, run, {"pyarrow": 2})
    row = command._try("3.13", python, "efo.whl[cli]", [])
    assert row["wrong"] == ["pyarrow is missing", "pytest ended with 1: FAILED test_a"]
    assert row["tests"] == 0


@pytest.mark.parametrize(("place", "wrong"), [("site-packages/efo", 0), ("checkout/efo", 1)])
def test_the_tests_run_on_the_wheel_and_within_a_time(tmp_path, monkeypatch, place, wrong):
    commands = []

    def run(words, **options):
        commands.append((words, options))
        return f"{tmp_path}/lib/python3.1/{place}" if "-c" in words else "2500 passed, 3 skipped in 1 s"

    python = install_nothing(monkeypatch, tmp_path, run, {})
    row = command._try("3.13", python, "efo.whl[cli]", ["-k", "lease"])
    assert len(row["wrong"]) == wrong
    if not wrong:
        assert row == {**ROW, "tests": 2_500}
        words, options = commands[-1]
        assert words[-2:] == ["-k", "lease"]
        assert options["timeout"] > 0


@pytest.mark.parametrize(
    ("found", "wrong", "status"), [({}, [], 1), ({"3.13"}, [], Exit.UNAVAILABLE), ({"3.13", "3.14"}, ["x"], 1)]
)
def test_the_exit_status_tells_a_failure_from_a_version_that_is_not_there(
    tmp_path, monkeypatch, capsys, found, wrong, status
):
    monkeypatch.setattr(command, "WORK", tmp_path / "work")
    monkeypatch.setattr(command, "find", lambda *_: dict.fromkeys(sorted(found), tmp_path))
    monkeypatch.setattr(command, "_try", lambda *_: {**ROW, "wrong": wrong})

    def build(words, **_options):
        words[-1].mkdir()
        (words[-1] / "efo-0.1.0-py3-none-any.whl").touch()

    monkeypatch.setattr(command, "run", build)
    assert command.main(["3.13", "3.14"]) == status
    assert capsys.readouterr().out.count('"version": "3.13.1"') == len(found)
