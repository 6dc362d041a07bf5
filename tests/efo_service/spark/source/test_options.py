from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from efo_service.spark.source.offsets import TopicPartition
from efo_service.spark.source.options import EARLIEST, LATEST, parse_options

NEEDED = {"path": "/log", "subscribe": "t"}


def test_the_defaults() -> None:
    options = parse_options(NEEDED)
    assert (options.root, options.subscription.topics, options.reader) == (Path("/log"), ("t",), None)
    assert (options.starting, options.ending, options.max_rows) == (None, None, None)
    assert options.tasks >= 1
    assert (options.headers, options.fail_on_data_loss) == (False, True)


def test_names_are_taken_in_any_case() -> None:
    options = parse_options(
        {
            "PATH": "file:///log",
            "Subscribe": "a, b,",
            "startingoffsets": "Earliest",
            "ENDINGOFFSETS": "latest",
            "maxoffsetspertrigger": "10",
            "minPartitions": "3",
            "includeheaders": "TRUE",
            "failOnDataLoss": "false",
            "Reader": "billing-1",
        }
    )
    assert (options.root, options.subscription.topics, options.reader) == (Path("/log"), ("a", "b"), "billing-1")
    assert (options.starting, options.ending, options.max_rows, options.tasks) == (EARLIEST, LATEST, 10, 3)
    assert (options.headers, options.fail_on_data_loss) == (True, False)


def test_offsets_per_partition() -> None:
    options = parse_options({**NEEDED, "startingOffsets": '{"t": {"3": 14, "4": -1}}'})
    assert options.starting == {TopicPartition("t", 3): 14, TopicPartition("t", 4): LATEST}


def test_topics_by_a_pattern_of_their_whole_names() -> None:
    chosen = parse_options({"path": "/log", "subscribePattern": "orders-.+"}).subscription
    assert chosen.choose(["orders", "orders-eu", "old-orders-us", "orders-us"]) == ["orders-eu", "orders-us"]
    assert chosen.has(TopicPartition("orders-eu", 7))


def test_single_partitions() -> None:
    chosen = parse_options({"path": "/log", "assign": '{"b": [0, 2], "a": [1]}'}).subscription
    assert chosen.topics == ("a", "b")
    assert [chosen.has(TopicPartition("b", at)) for at in range(3)] == [True, False, True]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "/log"}, "needs its topics"),
        ({"path": "/log", "subscribe": " , "}, "needs its topics"),
        ({"subscribe": "t"}, "needs the log's directory"),
        ({**NEEDED, "maxOffsetPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({**NEEDED, "kafka.bootstrap.servers": "x:9092"}, "it knows path, subscribe"),
        ({**NEEDED, "maxOffsetsPerTrigger": "0"}, "above 0"),
        ({**NEEDED, "maxOffsetsPerTrigger": "ten"}, "above 0"),
        ({**NEEDED, "includeHeaders": "yes"}, "true or false"),
        ({**NEEDED, "startingOffsets": "soon"}, "earliest, latest or JSON"),
        ({**NEEDED, "endingOffsets": "earliest"}, "earliest, latest or JSON"),
        ({**NEEDED, "startingOffsets": '{"u": {"0": 1}}'}, "speaks of u"),
        ({**NEEDED, "endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest"),
        ({**NEEDED, "subscribePattern": "t.*"}, "by one of .* not subscribe and subscribePattern"),
        ({"path": "/log", "subscribePattern": "t["}, "not a regular expression"),
        ({"path": "/log", "subscribePattern": "t.*", "startingOffsets": '{"u": {"0": 1}}'}, "speaks of u"),
        ({"path": "/log", "assign": '{"t": [1]}', "startingOffsets": '{"t": {"0": 1}}'}, "partition 0 of t"),
        *(({"path": "/log", "assign": text}, "expected JSON like") for text in ("t", "{}", '{"t": []}', '{"t": [-1]}')),
        *(({"path": "/log", "assign": text}, "expected JSON like") for text in ('{"t": ["0"]}', '{"t": 0}', '["t"]')),
        ({**NEEDED, "reader": "../up"}, "is not a valid reader name"),
        ({"path": "/log", "assign": '{"t": [1]}', "reader": "r"}, "reader and assign exclude each other"),
    ],
)
def test_options_that_are_wrong(given, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_options(given)
