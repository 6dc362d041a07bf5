"""`make migrate-test` names each format and how its rows were made, and its exit status tells what it found."""

import json
import os

import pytest

from efo_service.operations.migration.formats import FORMATS
from proofs.migration import __main__ as command
from proofs.migration.cases import CASES, PYTHON, Case
from proofs.migration.scenario import Part, _compare


def test_every_library_and_each_of_its_stores_has_a_case():
    assert {case.library for case in CASES} == set(FORMATS)
    stores = {store for form in FORMATS.values() for store in form.layouts}
    assert stores == {"dynamodb", "redis", "sql"}
    servers = {case.serve.__name__ for case in CASES if case.serve}
    assert servers == {"serve_redis", "serve_postgres", "serve_mariadb"}


def test_the_rows_of_each_case_are_said_to_be_made_by_a_library_or_by_its_schema():
    made = {case.name: case.made for case in CASES}
    assert made["kcl-1"] == "written by KCL 1.15.3"
    assert [name for name, text in made.items() if not text.startswith("written by ")] == ["kinesumer"]


def test_a_python_program_gets_its_place_before_its_configuration():
    programs = {case.name: case.program("redis://127.0.0.1:1/0") for case in CASES}
    assert programs["async-kinesis-redis"].run == (str(PYTHON), "async_kinesis_program.py", "redis://127.0.0.1:1/0")
    assert programs["harlow-redis"].arguments == ("redis", "redis://127.0.0.1:1/0", "kinesis_consumer")
    assert programs["kinesumer"] is None


def test_missing_and_repeated_records_are_counted():
    assert _compare([5, 6, 6, 9], before=6, end=9) == Part(missing=2, repeated=1)


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ({"efo": {"missing": 0, "repeated": 0}, "back": {"missing": 0, "repeated": 0}}, 0),
        ({"efo": {"missing": 1, "repeated": 0}}, 1),
        ({"efo": {"missing": 0, "repeated": 3}}, 1),
        ({"efo": {"missing": 0, "repeated": 3}, "repeats_because": "the library"}, 0),
        ({"efo": {"missing": 1, "repeated": 3}, "repeats_because": "the library"}, 1),
        ({"failed": "x"}, 1),
        ({"skipped": "x"}, os.EX_UNAVAILABLE),
    ],
)
def test_the_exit_status_is_that_of_the_worst_result(result, status, monkeypatch, capsys):
    monkeypatch.setattr(command, "CASES", (Case("one", "kinesumer"),))
    monkeypatch.setattr(command, "_run", lambda case, _directory: {"made": case.made} | result)
    assert command.main([]) == status
    output = capsys.readouterr().out
    assert json.loads(output.splitlines()[-1]) == {"one": {"made": CASES[5].made} | result}
    assert "by its documented schema" in output
