import pickle
from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from efo_service.log.disk import DiskFiles
from efo_service.log.objects.files import ObjectFiles
from efo_service.object_store.url import parse_url
from efo_service.spark.source.bounds import EARLIEST, LATEST, AtTime
from efo_service.spark.source.offsets import TopicPartition
from efo_service.spark.source.options import COLUMNS, parse_options

REQUIRED = {"path": "/log", "subscribe": "t"}


def test_options_have_defaults() -> None:
    options = parse_options(REQUIRED)
    assert (options.log, options.subscription.topics, options.reader) == (
        DiskFiles(Path("/log"), mapped=True),
        ("t",),
        None,
    )
    assert (options.starting, options.ending, options.max_rows) == (None, None, None)
    assert (options.tasks, options.task_rows, options.min_rows) == (None, None, None)
    assert (options.columns, options.fail_on_data_loss) == (COLUMNS[:-1], True)


def test_option_names_are_case_insensitive() -> None:
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
    assert options.log == DiskFiles(Path("/log"), mapped=True)
    assert (options.subscription.topics, options.reader) == (("a", "b"), "billing-1")
    assert (options.starting, options.ending, options.max_rows, options.tasks) == (EARLIEST, LATEST, 10, 3)
    assert (options.columns, options.fail_on_data_loss) == (COLUMNS, False)


def test_the_position_is_columns_by_its_option_or_by_name() -> None:
    position = ("stream", "shard_id", "sequence_number", "sub_sequence_number")
    assert parse_options({**REQUIRED, "includePosition": "true"}).columns == (*COLUMNS[:-1], *position)
    assert parse_options({**REQUIRED, "columns": "Shard_ID, offset"}).columns == ("shard_id", "offset")
    with pytest.raises(ConfigurationError, match="columns and includePosition exclude each other"):
        parse_options({**REQUIRED, "columns": "offset", "includePosition": "true"})


@pytest.mark.parametrize("path", ["/var/log", "file:/var/log", "file:///var/log"])
def test_a_directory_may_be_a_uri(path) -> None:
    assert parse_options({**REQUIRED, "path": path}).log == DiskFiles(Path("/var/log"), mapped=True)


def test_starting_offsets_are_parsed_per_partition() -> None:
    options = parse_options({**REQUIRED, "startingOffsets": '{"t": {"3": 14, "4": -1}}'})
    assert options.starting == {TopicPartition("t", 3): 14, TopicPartition("t", 4): LATEST}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": "17"}, AtTime("startingTimestamp", 17, or_latest=False)),
        (
            {"startingTimestamp": "2023-11-14T22:13:20.5Z"},
            AtTime("startingTimestamp", 1_700_000_000_500, or_latest=False),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"3": "2023-11-14T23:13:20+01:00"}}'},
            AtTime("startingOffsetsByTimestamp", {TopicPartition("t", 3): 1_700_000_000_000}, or_latest=False),
        ),
        (
            {"startingTimestamp": "17", "startingOffsetsByTimestampStrategy": "LATEST"},
            AtTime("startingTimestamp", 17, or_latest=True),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"3": 14}}', "startingOffsets": "earliest"},
            AtTime("startingOffsetsByTimestamp", {TopicPartition("t", 3): 14}, or_latest=False),
        ),
        (
            {"startingTimestamp": "17", "startingOffsetsByTimestamp": '{"t": {"3": 14}}'},
            AtTime("startingTimestamp", 17, or_latest=False),
        ),
    ],
)
def test_times_go_before_offsets(options, expected) -> None:
    assert parse_options({**REQUIRED, **options}).starting == expected
    ending = {
        name.replace("starting", "ending"): value for name, value in options.items() if not name.endswith("Strategy")
    }
    found = parse_options({**REQUIRED, **{n: v.replace("earliest", "latest") for n, v in ending.items()}}).ending
    assert (found.times, found.or_latest) == (expected.times, True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500", 0.5), ("500ms", 0.5), ("30s", 30), ("15m", 900), ("2 min", 120), ("1H", 3600)]
)
def test_a_delay_is_a_duration_as_spark_writes_it(text, seconds) -> None:
    options = parse_options({**REQUIRED, "minOffsetsPerTrigger": "5", "maxTriggerDelay": text})
    assert (options.min_rows, options.trigger_delay) == (5, pytest.approx(seconds))


def test_columns_are_chosen_in_their_order() -> None:
    assert parse_options({**REQUIRED, "columns": "offset, Key,headers"}).columns == ("offset", "key", "headers")


def test_a_pattern_selects_topics_by_their_full_names() -> None:
    subscription = parse_options({"path": "/log", "subscribePattern": "orders-.+"}).subscription
    assert subscription.select(["orders", "orders-eu", "old-orders-us", "orders-us"]) == ["orders-eu", "orders-us"]
    assert subscription.includes(TopicPartition("orders-eu", 7))


def test_assign_selects_single_partitions() -> None:
    subscription = parse_options({"path": "/log", "assign": '{"b": [0, 2], "a": [1]}'}).subscription
    assert subscription.topics == ("a", "b")
    assert [subscription.includes(TopicPartition("b", at)) for at in range(3)] == [True, False, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/log"}, "needs exactly one of"),
        ({"path": "/log", "subscribe": " , "}, "needs exactly one of"),
        ({"subscribe": "t"}, "needs the log's directory or URL"),
        ({**REQUIRED, "maxOffsetPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({**REQUIRED, "kafka.bootstrap.servers": "x:9092"}, "there is no broker to connect to"),
        ({**REQUIRED, "fetchOffset.numRetries": "3"}, "there is no broker to connect to"),
        ({**REQUIRED, "groupIdPrefix": "x"}, "a query has no consumer group"),
        ({**REQUIRED, "kafka.isolation.level": "x"}, "nothing uncommitted to read"),
        ({**REQUIRED, "nothing": "x"}, "the options are path, subscribe"),
        ({**REQUIRED, "startingTimestamp": "-1"}, "milliseconds since 1970"),
        ({**REQUIRED, "startingTimestamp": "-15m"}, "milliseconds since 1970"),
        ({**REQUIRED, "endingTimestamp": "2026-01-31T12:00:00"}, "a time with its zone like 2026-01-31T12:00:00Z"),
        (
            {**REQUIRED, "startingTimestamp": "2026-01-31T12:00:00Z", "endingTimestamp": "17"},
            "startingTimestamp is after endingTimestamp: nothing can be between them",
        ),
        ({**REQUIRED, "endingOffsets": "earliest"}, r"endingOffsets cannot be earliest \(-2\)"),
        ({**REQUIRED, "startingTimestamp": "9" * 30}, "milliseconds since 1970"),
        ({**REQUIRED, "endingTimestamp": "2026-01-01"}, "milliseconds since 1970"),
        ({**REQUIRED, "startingOffsetsByTimestamp": '{"t": {"0": -2}}'}, "each milliseconds"),
        ({**REQUIRED, "startingOffsetsByTimestamp": "{}"}, "each milliseconds"),
        ({**REQUIRED, "endingOffsetsByTimestamp": "[" * 5000}, "each milliseconds"),
        ({**REQUIRED, "endingOffsetsByTimestamp": '{"u": {"0": 1}}'}, "not subscribed: u"),
        ({**REQUIRED, "startingOffsetsByTimestampStrategy": "none"}, "expected error or latest"),
        ({**REQUIRED, "startingOffsetsByTimestampStrategy": "latest"}, "has no effect without startingTimestamp"),
        ({**REQUIRED, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is above maxOffsetsPerTrigger"),
        ({**REQUIRED, "maxTriggerDelay": "5s"}, "no effect without minOffsetsPerTrigger"),
        ({**REQUIRED, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "0s"}, "a duration above 0"),
        ({**REQUIRED, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1 week"}, "a duration above 0"),
        ({**REQUIRED, "columns": "key,offsets"}, "expected some of key, value"),
        ({**REQUIRED, "columns": "key,KEY"}, "each once"),
        ({**REQUIRED, "columns": ","}, "expected some of"),
        ({**REQUIRED, "columns": "key", "includeHeaders": "true"}, "columns and includeHeaders exclude each other"),
        ({**REQUIRED, "maxOffsetsPerTrigger": "0"}, "above 0"),
        ({**REQUIRED, "maxOffsetsPerTrigger": "ten"}, "above 0"),
        ({**REQUIRED, "maxOffsetsPerTrigger": "9" * 6000}, "above 0"),
        ({**REQUIRED, "startingOffsets": "[" * 5000}, "earliest, latest or JSON"),
        ({**REQUIRED, "startingOffsets": '{"t": {"0": 1e400}}'}, "earliest, latest or JSON"),
        ({"path": "/log", "assign": "[" * 5000}, "expected JSON like"),
        ({"path": "/log", "assign": f'{{"t": [{"9" * 6000}]}}'}, "expected JSON like"),
        ({"path": "/log", "subscribePattern": "(" * 5000}, "not a regular expression"),
        ({"path": "/log", "subscribePattern": "t{99999999999}"}, "not a regular expression"),
        ({**REQUIRED, "includeHeaders": "yes"}, "true or false"),
        ({**REQUIRED, "startingOffsets": "soon"}, "earliest, latest or JSON"),
        ({**REQUIRED, "startingOffsets": '{"u": {"0": 1}}'}, "not subscribed: u"),
        ({**REQUIRED, "endingOffsets": '{"t": {"0": -2}}'}, "cannot be earliest"),
        ({**REQUIRED, "subscribePattern": "t.*"}, "exactly one of .* not subscribe and subscribePattern"),
        ({"path": "/log", "subscribePattern": "t["}, "not a regular expression"),
        ({"path": "/log", "subscribePattern": "t.*", "startingOffsets": '{"u": {"0": 1}}'}, "not subscribed: u"),
        ({"path": "/log", "assign": '{"t": [1]}', "startingOffsets": '{"t": {"0": 1}}'}, "partition 0 of t"),
        *(({"path": "/log", "assign": text}, "expected JSON like") for text in ("t", "{}", '{"t": []}', '{"t": [-1]}')),
        *(({"path": "/log", "assign": text}, "expected JSON like") for text in ('{"t": ["0"]}', '{"t": 0}', '["t"]')),
        ({**REQUIRED, "reader": "../up"}, "is not a valid reader name"),
        ({"path": "/log", "assign": '{"t": [1]}', "reader": "r"}, "reader and assign exclude each other"),
    ],
)
def test_invalid_options_are_rejected(options, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_options(options)


def test_a_log_on_an_object_store_has_a_url_and_options() -> None:
    options = parse_options({**REQUIRED, "path": "s3://logs/efo", "storeOptions": '{"region": "eu-west-1"}'})
    assert options.log == ObjectFiles(url=parse_url("s3://logs/efo"))
    assert options.log.name == "s3://logs/efo"
    assert pickle.loads(pickle.dumps(options.log))._url.options == {"region": "eu-west-1"}  # noqa: S301 - its own


@pytest.mark.parametrize(
    ("path", "store_options", "message"),
    [
        ("s3://logs/efo", "region", "storeOptions: expected JSON like"),
        ("s3://logs/efo", "[1]", "storeOptions: expected JSON like"),
        ("s3://logs/efo", '{"secret_access_key": "x"}', "Credentials come from the environment"),
        ("/log", '{"region": "eu-west-1"}', "are for a log on an object store"),
        ("ftp://logs/efo", "{}", "expected s3://bucket/prefix"),
    ],
)
def test_invalid_stores_are_rejected(path, store_options, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_options({**REQUIRED, "path": path, "storeOptions": store_options})
