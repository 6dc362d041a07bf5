"""What commands write is whole, however narrow the terminal."""

from __future__ import annotations

from efo_service.commands.output import write_table


def test_a_table_in_a_narrow_terminal_cuts_no_identifier(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/" + "orders" * 20
    write_table("[consumers]", ("name", "arn"), [("billing[0]", arn)])
    output = capsys.readouterr().out
    assert "[consumers]" in output
    assert any("billing[0]" in line and arn in line for line in output.splitlines())
