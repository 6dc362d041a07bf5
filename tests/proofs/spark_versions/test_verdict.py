"""The verdict of `make spark-versions` notices what differs, and what is refused without a name."""

from __future__ import annotations

import pytest

from proofs.spark_versions.verdict import judge

LIMIT = "maxOffsetsPerTrigger: in micro-batches"
NEWEST = {"subscribe: one topic": {"rows": 2, "digest": "a"}, LIMIT: {"rows": 2}, "latest": {"refused": "no"}}
GOOD = {**NEWEST, LIMIT: {"refused": "maxOffsetsPerTrigger needs Spark 4.2 or newer, but this is Spark 4.1.4, in"}}


def results(of_4_1) -> list[str]:
    return [verdict.result for verdict in judge({"4.1": of_4_1, "4.3": NEWEST}, "4.3") if verdict.version == "4.1"]


def test_the_same_rows_are_alike_and_a_refusal_has_the_name() -> None:
    assert results(GOOD) == ["alike", "refused_by_name", "alike"]


@pytest.mark.parametrize(
    "change",
    [
        {"subscribe: one topic": {"rows": 2, "digest": "b"}},
        {"subscribe: one topic": {"refused": "no"}},
        {"latest": {"rows": 0}},
        {LIMIT: {"rows": 2}},
        {LIMIT: {"refused": "some error"}},
        {LIMIT: {"refused": "maxOffsetsPerTrigger needs Spark 4.2, but this is Spark 4.0.0"}},
    ],
)
def test_anything_else_is_wrong(change) -> None:
    assert "wrong" in results({**GOOD, **change})


def test_a_row_that_did_not_run_is_wrong() -> None:
    assert results({}) == ["wrong", "wrong", "wrong"]
