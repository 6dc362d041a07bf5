"""What the programs that run on a table's own Spark print: progress as it comes, and last the result."""

from __future__ import annotations

from proofs.e2e.tables.table import _last_line


async def test_the_lines_before_the_last_one_are_reported_as_they_come() -> None:
    reported: list[str] = []

    async def stdout():
        yield b"json new_column: pa"
        yield b"ssed\navro"
        assert reported == []  # it may be the last one
        yield b" new_column: passed\n{}"
        assert reported == ["json new_column: passed"]
        yield b"\n"

    assert await _last_line(stdout(), reported.append) == b"{}"
    assert reported == ["json new_column: passed", "avro new_column: passed"]


async def test_a_program_that_prints_nothing_has_no_last_line() -> None:
    async def stdout():
        for _ in ():
            yield b""

    assert await _last_line(stdout(), list.append) == b""
