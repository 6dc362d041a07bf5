"""What the comparison of Spark's sources calls a difference. The comparison itself is `make spark-parity`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from efo_service.spark.source.options import parse_options
from proofs.spark_parity.cases import CASES, Case
from proofs.spark_parity.run import Answer, difference

CASE = Case("option", "name", 2, {})
GOOD = Answer(("a", "b"), (1, 1), 3, ({"minOffsetsBehindLatest": "0"},))
REFUSED = Answer(refused="IllegalArgumentException: no")


@pytest.mark.parametrize(
    ("case", "efo", "expected"),
    [
        (CASE, GOOD, ""),
        (CASE, replace(GOOD, rows=("a",)), "1 rows, Kafka's source 2"),
        (CASE, REFUSED, "efo refused: IllegalArgumentException: no"),
        (replace(CASE, rows=3), GOOD, "both read 2 rows, expected 3"),
        (CASE, replace(GOOD, batches=(2,)), ""),
        (replace(CASE, alike="batches"), replace(GOOD, batches=(2,)), "micro-batches of (2,), Kafka's source (1, 1)"),
        (CASE, replace(GOOD, behind=()), "progress (), Kafka's source ({'minOffsetsBehindLatest': '0'},)"),
        (replace(CASE, alike="tasks", tasks=3), replace(GOOD, tasks=2), "2 tasks, Kafka's source 3, expected 3"),
        (
            replace(CASE, alike="rows, efo's tasks", tasks=4),
            replace(GOOD, tasks=3),
            "3 tasks, Kafka's source 3, expected 4",
        ),
        (replace(CASE, alike="refusal"), REFUSED, "Kafka's source did not refuse"),
    ],
)
def test_a_difference_is_reported(case, efo, expected) -> None:
    assert difference(case, efo, GOOD) == expected


def test_both_refusals_are_alike() -> None:
    assert difference(replace(CASE, alike="refusal"), REFUSED, REFUSED) == ""


def test_each_option_that_both_sources_have_is_compared_and_documented() -> None:
    # The last goes with minOffsetsPerTrigger.
    own = {"path", "storeOptions", "columns", "includePosition", "pushDownFilters", "reader", "maxTriggerDelay"}
    with pytest.raises(Exception, match="the options are") as caught:
        parse_options({"path": "/log", "unheard of": "x"})
    options = set(str(caught.value).partition("the options are ")[2].split(", "))
    assert {case.option for case in CASES} == options - own
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    assert [option for option in options - {"path"} if f"`{option}`" not in page] == []
