"""What `efo doctor` reports."""

import pytest

from efo_service.exit_codes import Exit
from efo_service.operations.doctor.report import document, exit_code, lines
from efo_service.operations.doctor.running import Finding, failed, not_tested, passed

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/" + "orders" * 20
FINDINGS = [
    Finding("dns", passed("host is 10.0.0.1, and " + "so on " * 20)),
    Finding("stream", failed(f"the policy of {ARN} denies it", f"allow it on {ARN} in a policy")),
    Finding("clock", not_tested("dns failed")),
]


def test_a_document_has_all_checks_and_the_number_of_failures():
    assert document(FINDINGS[1:]) == {
        "checks": [
            {
                "name": "stream",
                "result": "failed",
                "detail": f"the policy of {ARN} denies it",
                "remedy": f"allow it on {ARN} in a policy",
            },
            {"name": "clock", "result": "not tested", "detail": "dns failed", "remedy": ""},
        ],
        "failed": 1,
    }


def test_text_fits_80_columns_and_cuts_no_identifier():
    text = list(lines(FINDINGS))
    assert [line for line in text if len(line) > 80] == [line for line in text if ARN in line]
    assert sum(ARN in line for line in text) == 2
    assert text[0].startswith("✓ dns: host is")
    assert any(line.startswith("✗ stream: ") for line in text)
    assert any(line.startswith("    remedy: allow it on") for line in text)
    assert "- clock: not tested: dns failed" in text
    assert text[-1] == "3 checks: 1 passed, 1 failed, 1 not tested"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_terminal_without_the_marks_gets_others(encoding):
    assert [line[0] for line in lines(FINDINGS, encoding) if " dns:" in line or " stream:" in line] == ["+", "x"]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((), Exit.OK),
        ((Exit.UNAVAILABLE,), Exit.UNAVAILABLE),
        ((Exit.CONFIGURATION, Exit.UNAVAILABLE), Exit.UNAVAILABLE),
        ((Exit.CONFIGURATION,), Exit.CONFIGURATION),
        ((Exit.UNAVAILABLE, Exit.INTERNAL), Exit.INTERNAL),
    ],
)
def test_the_exit_code_is_that_of_the_most_severe_failure(codes, expected):
    findings = [Finding(str(code), failed("", "", code)) for code in codes]
    assert exit_code([*findings, *FINDINGS[2:], *FINDINGS[:1]]) == expected
