"""The producer that all shards share if delivery is at least once. Without a broker."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException

from efo.model import Record
from efo_service.relay.kafka.errors import KafkaFatalError
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.producer import IdempotentWriter, KafkaDestination
from efo_service.relay.kafka.sink import KafkaSink
from efo_service.relay.kafka.topics import KafkaTopic
from efo_service.relay.mapping import RecordMapping

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.fixture
def sink():
    sink = object.__new__(KafkaSink)
    sink._options = KafkaOptions()
    sink._shared, sink._producer_lock = None, threading.Lock()
    yield sink
    sink._shared.close()


def test_concurrent_openings_share_one_producer(sink):
    with ThreadPoolExecutor(8) as threads:
        producers = list(threads.map(lambda _: sink._shared_producer(CONFIG), range(16)))
    assert len(set(map(id, producers))) == 1


def test_a_producer_that_has_failed_for_good_is_replaced(sink):
    class FailedProducer:
        def produce(self, *_):
            raise KafkaException(KafkaError(KafkaError._FATAL))

    first = sink._shared_producer(CONFIG)
    working_producer, first.producer = first.producer, FailedProducer()
    writer = IdempotentWriter(
        first, KafkaDestination(KafkaTopic("t", 1, 1000), RecordMapping("orders", "s", None), None, 0)
    )
    with pytest.raises(KafkaFatalError):
        writer.append([Record("1", 1.0, b"", "k")])
    first.producer = working_producer
    second = sink._shared_producer(CONFIG)
    assert second is not first
    assert sink._shared_producer(CONFIG) is second
