"""What commands write is whole, however narrow the terminal."""

from __future__ import annotations

from efo.errors import ConfigurationError, LeaseStoreCorruptError
from efo_service.commands.output import write_line, write_note, write_table
from efo_service.exit_codes import report


def test_a_table_in_a_narrow_terminal_cuts_no_identifier(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/" + "orders" * 20
    write_table("[consumers]", ("name", "arn"), [("billing[0]", arn)])
    output = capsys.readouterr().out
    assert "[consumers]" in output
    assert any("billing[0]" in line and arn in line for line in output.splitlines())


EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\x9b\u202e[bold]"


def test_control_characters_are_escaped_in_all_that_is_written(capsys) -> None:
    write_table(EVIL, ("name", "owner"), [(EVIL, "a"), ("b", EVIL)])
    write_line(EVIL)
    write_note(EVIL)
    report(LeaseStoreCorruptError(f"the lease {EVIL} is damaged"))
    output = capsys.readouterr()
    lines = (output.out + output.err).splitlines()
    assert [line for line in lines if not line.isprintable()] == []
    assert sum(r"\x1b]0;owned\x07" in line for line in lines) == 6


def test_a_further_line_of_an_error_cannot_look_like_another_error(capsys) -> None:
    report(ConfigurationError("file.toml: first\nefo: second"))
    assert capsys.readouterr().err.splitlines() == ["efo: file.toml: first", "     efo: second"]
