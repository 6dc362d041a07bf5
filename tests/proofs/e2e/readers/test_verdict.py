"""The verdict of `make readers` notices what is lost, read twice, or another record."""

from __future__ import annotations

import pytest

from proofs.e2e.readers.verdict import Verdict, ends_of, judge

RIGHT = [(0, 0, 0), (0, 1, 1), (1, 0, 0)]


def test_each_record_once_passes() -> None:
    assert judge(RIGHT, {0: 1}) == Verdict(reads=1, records=3)
    assert judge(RIGHT).passed
    assert ends_of(RIGHT) == {0: 2, 1: 1}


@pytest.mark.parametrize(
    ("rows", "before", "expected"),
    [
        ([(0, 0, 0), (0, 2, 2)], {}, (1, 0, 0)),
        ([*RIGHT, (0, 1, 1)], {}, (0, 1, 0)),
        ([(0, 0, 0), (0, 1, 7)], {}, (0, 0, 1)),
        (RIGHT, {0: 4}, (2, 0, 0)),
        (RIGHT, {2: 3}, (3, 0, 0)),
        ([], {0: 1}, (1, 0, 0)),
    ],
)
def test_what_is_wrong_is_counted(rows, before, expected) -> None:
    verdict = judge(rows, before)
    assert (verdict.lost, verdict.duplicated, verdict.wrong) == expected
    assert not verdict.passed


def test_no_record_at_all_does_not_pass() -> None:
    assert not Verdict().passed
