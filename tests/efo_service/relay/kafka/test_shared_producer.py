"""The producer that all shards share where delivery is at least once, without a broker."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException

from efo.model import Record
from efo_service.relay.kafka.errors import KafkaFatalError
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.producer import IdempotentWriter, Target
from efo_service.relay.kafka.sink import KafkaSink
from efo_service.relay.kafka.topics import Topic
from efo_service.relay.mapping import RecordMapping

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.fixture
def sink():
    sink = object.__new__(KafkaSink)
    sink._options = KafkaOptions()
    sink._shared, sink._making = None, threading.Lock()
    yield sink
    sink._shared.close()


def test_it_is_made_once_however_many_shards_open(sink):
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: sink._sharing(CONFIG), range(16)))
    assert len(set(map(id, made))) == 1


def test_one_that_has_failed_for_good_is_replaced(sink):
    class Failed:
        def produce(self, *_):
            raise KafkaException(KafkaError(KafkaError._FATAL))

    first = sink._sharing(CONFIG)
    live, first.producer = first.producer, Failed()
    writer = IdempotentWriter(first, Target(Topic("t", 1, 1000), RecordMapping("orders", "s", None), None))
    with pytest.raises(KafkaFatalError):
        writer.append([Record("1", 1.0, b"", "k")])
    first.producer = live
    second = sink._sharing(CONFIG)
    assert second is not first
    assert sink._sharing(CONFIG) is second
