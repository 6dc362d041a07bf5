"""Which fan-out consumers are stale."""

from efo.model import FanOutConsumer
from efo_service.operations.consumers import DAY, stale

NOW = 1_800_000_000


def consumer(name, days, status="ACTIVE"):
    return FanOutConsumer(
        name, f"arn:aws:kinesis:us-east-1:1:stream/s/consumer/{name}:{NOW - round(days * DAY)}", status
    )


def test_stale_consumers_match_name_and_age_and_are_never_efos_own():
    consumers = [
        consumer("worker-1", 8),
        consumer("worker-2", 6.9),
        consumer("worker-3", 8, "DELETING"),
        consumer("worker-own", 99),
        consumer("billing", 99),
    ]
    result = stale(consumers, match="worker-*", older_than=7, now=NOW, own="worker-own")
    assert [one.name for one in result] == ["worker-1"]
