"""The features that other libraries have: their tests and commands exist, and the page is up to date."""

from __future__ import annotations

import json
import sys

import pytest

from tools.parity import __main__ as command, features
from tools.parity.features import PAGE, Feature, exists, is_command, read_features, renewed

HERE = "tests/tools/test_parity.py"


def feature(**fields: object) -> Feature:
    return Feature("area", "name", ("KCL",), "answer", **fields)


def test_the_page_is_up_to_date():
    assert renewed(PAGE.read_text(), read_features()) == PAGE.read_text(), "python -m tools.parity --write"


def test_every_named_test_and_command_exists_unless_it_waits_for_something():
    rows = [row for row in read_features() if row.waits_for is None]
    assert [row.name for row in rows if row.missing_tests or not all(map(is_command, row.commands))] == []


def test_each_feature_is_there_once():
    names = [row.name for row in read_features()]
    assert sorted(set(names)) == sorted(names)


def test_a_test_exists_by_its_file_its_name_and_its_class():
    assert exists(HERE)
    assert exists(f"{HERE}::test_the_page_is_up_to_date")
    assert exists(f"{HERE}::TestOfAClass::test_of_a_class")
    assert not exists(f"{HERE}::test_of_a_class")
    assert not exists("tests/tools/test_nothing.py")


class TestOfAClass:
    def test_of_a_class(self):
        assert is_command("make parity ARGS=-h")
        assert not is_command("make parit")
        assert not is_command("efo run")


def test_a_feature_without_tests_or_with_one_that_does_not_exist_is_missing():
    assert feature().is_missing
    assert feature(tests=(f"{HERE}::test_gone",)).is_missing
    assert feature(commands=("make nothing",)).is_missing
    assert not feature(tests=(HERE,)).is_missing
    assert not feature(commands=("make parity",)).is_missing


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{ name = "x", peers = ["Flink"], answer = "y" }', "x: unknown peer Flink"),
        ('{ name = "x", peers = [] }', "x: .*answer"),
        ('{ name = "x", peers = [], answer = "y", test = "z" }', "x: .*test"),
    ],
)
def test_a_wrong_entry_is_named(entry, message, tmp_path):
    (file := tmp_path / "features.toml").write_text(f'[[area]]\nname = "a"\nrow = [{entry}]\n')
    with pytest.raises(ValueError, match=message):
        read_features(file)


def test_a_page_without_a_place_for_the_tables_is_rejected():
    with pytest.raises(ValueError, match="has no place for the tables"):
        renewed("# Page\n", [])


PASSING = "def test_one(): pass\n"
FAILING = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_two(n): assert n == 1\n"
SKIPPED = "import pytest\ndef test_three(): pytest.skip('no server')\n"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command with these tests and features; it returns its status and its output."""

    def run(*rows: Feature, arguments: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        (tmp_path / "tests").mkdir()
        for name, text in {"one": PASSING, "two": FAILING, "three": SKIPPED}.items():
            (tmp_path / "tests" / f"test_{name}.py").write_text(text)
            sys.modules.pop(f"test_{name}", None)  # that of an earlier test
        (tmp_path / "Makefile").write_text("proof:\n\ttrue\n")
        monkeypatch.chdir(tmp_path)
        for module in (command, features):
            monkeypatch.setattr(module, "ROOT", tmp_path)
        monkeypatch.setattr(command, "read_features", lambda: rows)
        monkeypatch.setattr(features.exists, "__defaults__", (tmp_path,))
        monkeypatch.setattr(features.is_command, "__defaults__", (tmp_path,))
        return command.main(arguments), capsys.readouterr().out.splitlines()

    return run


def test_the_last_line_counts_the_rows_by_their_result(run):
    status, lines = run(
        feature(tests=("tests/test_one.py::test_one",)),
        feature(tests=("tests/test_one.py", "tests/test_two.py::test_two")),
        feature(tests=("tests/test_three.py::test_three",)),
        feature(commands=("make proof",)),
        feature(),
    )
    assert json.loads(lines[-1]) == {
        "rows": 5, "shown": 2, "missing": 1, "failed": 1, "skipped": 1, "by_command": 1,
    }  # fmt: skip
    assert status == 1
    results = [line.split()[0] for line in lines if line.endswith("area: name")]
    assert results == ["shown", "failed", "skipped", "by", "missing"]


def test_a_skipped_row_is_not_shown_and_a_missing_one_is_no_failure(run):
    rows = [feature(tests=("tests/test_three.py::test_three",)), feature()]
    status, lines = run(*rows)
    assert (status, json.loads(lines[-1])["shown"]) == (69, 0)


def test_only_the_chosen_rows_are_run(run):
    other = Feature("Leases", "hand-off", ("KCL",), "yes", tests=("tests/test_one.py",))
    status, lines = run(feature(tests=("tests/test_two.py",)), other, arguments=("-k", "HAND"))
    assert (status, json.loads(lines[-1])["rows"]) == (0, 1)
