from __future__ import annotations

from efo.events import EventReceived, RecordsProcessed, ShardStopped
from efo_service.web.live.shard_map import Rate
from efo_service.web.live.traffic import Traffic


def received(traffic: Traffic, *, records: int, size: int) -> None:
    traffic(EventReceived("s-0", records, size, 0, None))
    traffic(RecordsProcessed("s-0", records, 0.1, None, None))


def test_a_rate_is_measured_over_the_kept_samples():
    traffic = Traffic()
    assert traffic.sample(10.0) == {}
    received(traffic, records=10, size=1000)
    assert traffic.sample(11.0) == {"s-0": Rate(10.0, 1000.0)}
    assert traffic.sample(12.0) == {"s-0": Rate(5.0, 500.0)}
    for second in range(13, 20):
        rates = traffic.sample(float(second))
    assert rates == {"s-0": Rate(0.0, 0.0)}


def test_samples_from_before_nobody_looked_are_forgotten():
    traffic = Traffic()
    traffic.sample(0.0)
    received(traffic, records=10, size=1000)
    assert traffic.sample(100.0) == {}


def test_a_shard_that_is_read_anew_has_no_negative_rate():
    traffic = Traffic()
    received(traffic, records=10, size=1000)
    traffic.sample(1.0)
    traffic(ShardStopped("s-0"))
    received(traffic, records=1, size=100)
    assert traffic.sample(2.0) == {"s-0": Rate(0.0, 0.0)}
