from __future__ import annotations

from tools.docs import ledger


def test_what_ran_is_noted_and_read(tmp_path, monkeypatch):
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path / "ledger"))
    for place in ("a.md:1", "b.md:2", "a.md:1"):
        ledger.note(place)
    assert ledger.read(tmp_path / "ledger") == {"a.md:1", "b.md:2"}


def test_without_the_variable_nothing_is_noted(tmp_path, monkeypatch):
    monkeypatch.delenv(ledger.VARIABLE, raising=False)
    ledger.note("a.md:1")
    assert ledger.read(tmp_path / "ledger") == set()


def test_the_variable_is_no_setting_of_efo():
    assert not ledger.VARIABLE.startswith("EFO_")  # tests remove those, and so would what ran stay unknown
