"""A short `make kafka-e2e`: a relay, the broker and Spark are each killed once. Takes a minute on an idle machine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from proofs.e2e.kafka.broker import missing

pytestmark = [
    pytest.mark.runner,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.skipif(missing(connector=True) is not None, reason=str(missing(connector=True))),
]


def test_one_kill_of_each_process_causes_no_loss_and_no_duplicates():
    done = subprocess.run(
        [sys.executable, "-m", "proofs.e2e.kafka", "--kills", "3", "--records", "6000", "--rate", "1000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["produced"], summary["landed"], summary["in_the_topic"]) == (6000, 6000, 6000)
    assert (summary["lost"], summary["duplicated"], summary["order_violations"]) == (0, 0, 0)
    assert summary["kills_of"] == {"relay": 1, "broker": 1, "spark": 1}
