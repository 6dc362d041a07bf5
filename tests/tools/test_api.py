"""tools/api.py finds what is wrong with public names, and finds nothing in efo's."""

from __future__ import annotations

import json

import pytest

import efo
from tools import api

SAMPLE = """
from __future__ import annotations

from typing import TypeVar

from efo.leases.coordinator import LeaseCoordinator
from efo.model import Batch

T = TypeVar("T")
Handle = LeaseCoordinator
"What a handle is."


def typed(batch: Batch, value: T, *more: int) -> T:
    "Fine. Not so short."


def untyped(batch, *, count: int):
    ...


class Made:
    "A thing. Made by `typed`."

    kept: LeaseCoordinator
    _hidden: LeaseCoordinator

    def __init__(self, keeper):
        self.keeper = keeper
        self.count = 0
        self.named: Batch = make()

    def _internal(self, keeper): ...

    def method(self, keeper: LeaseCoordinator) -> None: ...


class Public:
    "Another."

    def __init__(self, keeper): ...
"""


@pytest.fixture
def described(tmp_path, monkeypatch):
    (tmp_path / "efo_sample.py").write_text(SAMPLE)
    monkeypatch.syspath_prepend(tmp_path)
    module = api.Module("efo_sample")
    return {name: api.Api()._describe(name, module, name) for name in module.definitions}


def test_a_meaning_is_the_first_sentence_of_a_docstring_or_of_the_text_below_a_value(described):
    assert [described[name].meaning for name in ("typed", "Handle", "untyped")] == ["Fine.", "What a handle is.", ""]


def test_parameters_results_and_attributes_without_a_type_are_found(described):
    assert described["typed"].untyped == []
    assert described["untyped"].untyped == ["untyped(batch)", "untyped()"]
    assert described["Made"].untyped == ["Made.keeper", "Made.count"]
    assert described["Public"].untyped == ["Public.__init__(keeper)"]


def test_types_that_cannot_be_imported_from_efo_are_found(described):
    keeper = ["efo.leases.coordinator.LeaseCoordinator"]
    found = [described[name].unexported for name in ("Handle", "typed", "Made", "Public")]
    assert found == [keeper, [], keeper, []]


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_the_public_names_of_efo_follow_the_rules(monkeypatch, capsys, arguments):
    monkeypatch.setattr("sys.argv", ["api.py", *arguments])
    assert api.main() == 0
    *names, last = capsys.readouterr().out.splitlines()
    assert json.loads(last) == {"names": len(names), "untyped": 0, "unexported": 0}
    assert len(names) > len(efo.__all__)
    if arguments:
        assert json.loads(names[0])["name"] == efo.__all__[0]


def test_a_name_that_leaves_the_public_names_is_missed_by_those_that_use_it(monkeypatch, capsys):
    monkeypatch.setattr(efo, "__all__", tuple(name for name in efo.__all__ if name != "FailurePolicy"))
    monkeypatch.setattr("sys.argv", ["api.py"])
    assert api.main() == 1
    assert "efo.protocol.failure.FailurePolicy is in its signature and has no public place" in capsys.readouterr().out
