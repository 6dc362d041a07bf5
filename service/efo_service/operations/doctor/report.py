"""What `efo doctor` reports: JSON, or text that fits 80 columns; and its exit code. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from efo.checks import printable
from efo_service.exit_codes import Exit, most_severe
from efo_service.operations.doctor.running import Finding, Result

WIDTH: Final = 80
MARKS: Final[Mapping[Result, str]] = {"passed": "✓", "failed": "✗", "not tested": "-"}
ASCII_MARKS: Final[Mapping[Result, str]] = {"passed": "+", "failed": "x", "not tested": "-"}
_INDENT: Final = " " * 4


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as a JSON document. `remedy` is empty unless a check failed."""
    checks = [
        {
            "name": finding.name,
            "result": finding.outcome.result,
            "detail": finding.outcome.detail,
            "remedy": finding.outcome.remedy,
        }
        for finding in findings
    ]
    return {"checks": checks, "failed": _count(findings, "failed")}


def document_of_streams(found: Mapping[str, Sequence[Finding]]) -> dict[str, Any]:
    """Return the findings of several streams, by their names, as a JSON document."""
    streams = [{"stream": name, **document(findings)} for name, findings in found.items()]
    return {"streams": streams, "failed": sum(stream["failed"] for stream in streams)}


def lines(findings: Sequence[Finding], encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of the report, of at most 80 columns each unless a single word is longer: nothing is cut.

    `encoding`: of the output. One that lacks the marks gets others.
    """
    marks = MARKS if _can_encode(encoding, MARKS.values()) else ASCII_MARKS
    for finding in findings:
        outcome = finding.outcome
        detail = f"not tested: {outcome.detail}" if outcome.result == "not tested" else outcome.detail
        yield from _wrapped(f"{marks[outcome.result]} {finding.name}: {detail}", "")
        if outcome.remedy:
            yield from _wrapped(f"remedy: {outcome.remedy}", _INDENT)
    yield ""
    counts = [f"{_count(findings, result)} {result}" for result in MARKS]
    yield f"{len(findings)} checks: {', '.join(counts)}"


def exit_code(findings: Iterable[Finding]) -> Exit:
    """Return the exit code: that of the most severe failure, OK if there is none."""
    return most_severe(finding.outcome.code for finding in findings)


def _count(findings: Iterable[Finding], result: Result) -> int:
    return sum(finding.outcome.result == result for finding in findings)


def _can_encode(encoding: str, marks: Iterable[str]) -> bool:
    try:
        "".join(marks).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        printable(" ".join(text.split())),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=_INDENT + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
