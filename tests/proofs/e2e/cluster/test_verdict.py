"""When the run on a cluster passes. The run itself is `make cluster-e2e`."""

from __future__ import annotations

import pytest

from efo_service.demo.load import Comparison
from proofs.e2e.cluster.__main__ import parse
from proofs.e2e.cluster.verdict import is_slow, problems, refusal, summarize

GOOD = Comparison(found=10, lost=0, duplicated=0, unexpected=0, order_violations=0)
REFUSED = {
    "executors without efo": 'format("efo") was planned with efo 1 by a, but b, which reads, cannot import efo (no)',
    "executors with another version": 'format("efo") was planned with efo 1 by a, but b, which reads, has efo 2: c',
    "planner without efo": "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: efo. Make sure",
}


def judged(read=GOOD, refusals=REFUSED, killed=("pipeline",), ways=("pipeline",)) -> list[str]:
    return problems(summarize(10, {"pipeline": read}, refusals, killed), ways)


def test_a_run_that_landed_everything_once_and_refused_what_is_wrong_passes() -> None:
    assert judged() == []


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (Comparison(9, 1, 0, 0, 0), ["1 records lost", "pipeline landed 9 of 10 records"]),
        (Comparison(11, 0, 1, 0, 0), ["1 records duplicated", "pipeline landed 11 of 10 records"]),
        (Comparison(10, 0, 0, 0, 2), ["2 records order violations"]),
    ],
)
def test_records_that_are_lost_repeated_or_out_of_order_fail_it(read, expected) -> None:
    assert judged(read) == expected


def test_a_way_that_was_not_tried_fails_it() -> None:
    assert judged(ways=("pipeline", "Connect batch")) == ["Connect batch was not tried"]


def test_a_run_without_a_kill_fails() -> None:
    assert judged(killed=()) == ["no worker was killed"]


def test_a_wrong_environment_that_was_refused_in_other_words_fails_it() -> None:
    (problem,) = judged(refusals=REFUSED | {"executors without efo": ""})
    assert problem.startswith("executors without efo: expected")


def test_the_sentence_is_found_in_the_output_of_a_job() -> None:
    text = (
        '  File x\nImportError: format("efo") was planned with efo 1 by a, but b\n\tat org.apache.spark\n'
        "ImportError: another\n"
    )
    assert refusal(text) == 'format("efo") was planned with efo 1 by a, but b'
    assert refusal("pyspark.errors.X: (java) [DATA_SOURCE_NOT_FOUND] Failed\n") == "[DATA_SOURCE_NOT_FOUND] Failed"
    assert refusal("Traceback\nValueError: no\n") == ""


def test_a_busy_machine_is_reported_from_a_wrong_job() -> None:
    assert is_slow("java.net.SocketTimeoutException\nPython worker failed to connect back.\n")
    assert not is_slow('ImportError: format("efo") was planned')


def test_the_number_of_records_must_be_positive(capsys) -> None:
    assert parse(["--records", "5"]).records == 5
    with pytest.raises(SystemExit):
        parse(["--records", "0"])
    assert "must be above 0" in capsys.readouterr().err
