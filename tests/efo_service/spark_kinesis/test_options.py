"""The options of format("kinesis"): which settings they are, and what is refused."""

from __future__ import annotations

import pytest

from efo.errors import ConfigurationError
from efo.model import Position
from efo_service.spark.source.bounds import EARLIEST, LATEST, AtTime
from efo_service.spark.source.options import NAMES
from efo_service.spark_kinesis.options import _SETTINGS, parse
from efo_service.spark_kinesis.other_connectors import HERE
from tests.paths import ROOT

LOG = {"stream": "orders", "log": "/var/lib/efo/log"}
NOW = 1_800_000_000.0
PAGE = (ROOT / "docs" / "spark.md").read_text()


def stream_of(**options: str):
    return parse({**LOG, **options}, {}).for_stream()


def test_a_stream_and_a_log_are_enough():
    settings, reading = stream_of()
    assert settings.kinesis.stream == "orders"
    assert str(settings.relay.directory) == "/var/lib/efo/log"
    assert str(settings.leases.path) == "/var/lib/efo/log/.kinesis/leases.sqlite"
    assert settings.consumer.position == Position.trim_horizon()
    assert (reading.subscription.topics, reading.starting) == (("orders",), EARLIEST)
    assert settings.consumer.fan_out_consumer == f"efo-spark-{settings.consumer.application}"


def test_another_log_has_another_application_and_consumer():
    first, second = (stream_of(log=f"/logs/{name}")[0] for name in "ab")
    assert first.consumer.application != second.consumer.application
    assert first.consumer.fan_out_consumer != second.consumer.fan_out_consumer


def test_options_are_settings_of_the_service():
    settings, reading = stream_of(
        REGION="eu-west-1",
        endpoint="https://127.0.0.1:1",
        proxyUrl="http://proxy:3128",
        roleArn="arn:aws:iam::123456789012:role/reader",
        application="billing",
        initialPosition="latest",
        readMode="auto",
        failoverSeconds="7",
        startingOffsets="latest",
        maxOffsetsPerTrigger="10",
        **{"efo.relay.retention_hours": "72", "efo.consumer.poll_seconds": "2", "efo.leases.dynamodb.table": "efo"},
    )
    assert (settings.kinesis.region, settings.kinesis.endpoint_url) == ("eu-west-1", "https://127.0.0.1:1")
    assert settings.kinesis.role is not None
    assert settings.kinesis.proxy == "http://proxy:3128"
    consumer = settings.consumer
    assert (consumer.application, consumer.fan_out_consumer) == ("billing", "efo-spark-billing")
    assert (consumer.position, consumer.read_mode, consumer.poll_seconds) == (Position.latest(), "auto", 2.0)
    assert (settings.leases.failover_seconds, settings.relay.retention_hours) == (7.0, 72.0)
    assert settings.leases.dynamodb.table == "efo"
    assert (reading.starting, reading.max_rows) == (LATEST, 10)


def test_the_path_of_load_is_the_log():
    assert parse({"stream": "orders", "path": "/a"}, {}).log == "/a"
    with pytest.raises(ConfigurationError, match=r"the option log and the path of load\(\) are the same"):
        parse({"stream": "orders", "path": "/a", "log": "/b"}, {})


def test_the_leases_of_a_log_on_an_object_store_are_beside_it():
    settings, reading = stream_of(log="s3://bucket/log", storeOptions='{"region": "eu-west-1"}')
    assert (settings.leases.store, settings.relay.store_options) == ("log", {"region": "eu-west-1"})
    assert reading.log.name == "s3://bucket/log"


def test_the_url_of_a_lease_store_comes_from_the_environment():
    given = {**LOG, "efo.leases.store": "postgres", "log": "s3://bucket/log"}
    settings, _ = parse(given, {"EFO_LEASES__URL": "postgresql://u:p@h/d"}).for_stream()
    assert settings.leases.url is not None
    assert settings.leases.url.get_secret_value() == "postgresql://u:p@h/d"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strem": "x"}, "has no option 'strem': did you mean stream"),
        ({"zzz": "x"}, "the options are stream, region"),
        ({"subscribe": "orders"}, "reads the whole stream that the option stream names"),
        ({"initialPosition": "soon"}, "initialPosition: 'soon' is not a position"),
        ({"failoverSeconds": "-1"}, "failoverSeconds: expected greater than 0"),
        ({"efo.relay.sink": "kafka"}, r"efo.relay.sink: the records go to the log"),
        ({"efo.relay.kafka.topic": "t"}, r"efo.relay.kafka.topic: the records go to the log"),
        ({"efo.leases.url": "postgresql://u:geheim@h/d"}, "set EFO_LEASES__URL in the driver's environment"),
        ({"proxyUrl": "http://u:geheim@proxy:3128"}, "are secrets: set HTTPS_PROXY in the driver's environment"),
        ({"proxyUrl": "socks5://geheim"}, "proxyUrl: proxy_url names a SOCKS proxy"),
        ({"efo.service.port": "1"}, "there is no service"),
        ({"efo.pipeline.output": "x"}, "with one of the tables consumer, leases"),
        ({"efo.consumer.pol_seconds": "1"}, "efo.consumer.pol_seconds: unknown key: did you mean 'poll_seconds'"),
        ({"efo.consumer.application": "a", "application": "b"}, "set by two options"),
        ({"endingTimestamp": "1"}, "endingTimestamp is for read, not for readStream"),
        ({"log": "s3://bucket/log", "efo.leases.store": "sqlite"}, "remove it, for leases beside the log"),
        ({"storeOptions": "[]"}, "storeOptions: expected JSON"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0': expected a whole number"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(options, message):
    with pytest.raises(ConfigurationError, match=message) as refused:
        stream_of(**options)
    assert "geheim" not in str(refused.value)


def test_a_stream_and_a_log_are_needed():
    with pytest.raises(ConfigurationError, match="needs the name or ARN of a stream"):
        parse({}, {})
    with pytest.raises(ConfigurationError, match="needs the log between Kinesis and the query"):
        parse({"stream": "orders"}, {}).for_stream()


def batch_of(tmp_path, **options: str):
    return parse({"stream": "orders", **options}, {}).for_batch(tmp_path, "batch-1", NOW)


def test_a_batch_has_a_consumer_of_its_own_and_begins_at_a_time(tmp_path):
    settings, reading, until = batch_of(tmp_path, startingTimestamp="1700000000500", endingTimestamp="1700000009000")
    assert settings.consumer.position == Position.at_timestamp(1_700_000_000.5)
    assert settings.consumer.fan_out_consumer.endswith("-batch-1")
    assert until == 1_700_000_009.0
    assert reading.starting == AtTime("startingTimestamp", 1_700_000_000_500, or_latest=True)


@pytest.mark.parametrize(("read_mode", "is_ephemeral"), [("fanout", True), ("auto", True), ("polling", False)])
def test_the_consumer_of_a_batch_ends_with_it(tmp_path, read_mode, is_ephemeral):
    settings, _, _ = batch_of(tmp_path, readMode=read_mode)
    assert settings.consumer.ephemeral is is_ephemeral


def test_a_start_that_is_now_by_another_clock_is_now(tmp_path):
    now = 1_750_000_000.0
    options = {"stream": "orders", "startingTimestamp": str(round((now + 60) * 1000))}
    settings, reading, until = parse(options, {}).for_batch(tmp_path, "batch-1", now)
    assert (settings.consumer.position, until) == (Position.at_timestamp(now), now)
    assert isinstance(reading.starting, AtTime)


def test_a_stream_cannot_begin_in_the_future():
    with pytest.raises(ConfigurationError, match="2999-01-01T00:00:00Z is in the future"):
        parse({"stream": "orders", "path": "log", "initialPosition": "2999-01-01T00:00:00Z"}, {}).for_stream()


def test_a_batch_without_times_reads_what_is_there_now(tmp_path):
    settings, reading, until = batch_of(tmp_path, application="billing")
    assert (settings.consumer.position, until, reading.ending) == (Position.trim_horizon(), NOW, None)
    assert settings.consumer.fan_out_consumer == "efo-spark-billing-batch-1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingTimestamp": "1900000000000"}, "endingTimestamp is in the future"),
        ({"startingTimestamp": "1700000000001", "endingTimestamp": "1700000000000"}, "is after endingTimestamp"),
        ({"startingTimestamp": "1900000000000"}, "startingTimestamp: 2030-03-17T17:46:40Z is in the future"),
        ({"startingOffsets": "earliest"}, "startingOffsets has no meaning for read"),
        ({"initialPosition": "latest"}, "initialPosition is for readStream: startingTimestamp"),
        ({"consumerName": "c"}, "consumerName is for readStream: it registers a consumer of its own"),
    ],
)
def test_what_a_batch_cannot_have_is_refused(tmp_path, options, message):
    with pytest.raises(ConfigurationError, match=message):
        batch_of(tmp_path, **options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("startingPosition", "here it is initialPosition"),
        ("kinesis.startingPosition", "here it is initialPosition"),
        ("kinesis.streamName", "here it is stream"),
        ("streamARN", "here it is stream"),
        ("kinesis.region", "here it is region"),
        ("kinesis.consumerType", "here it is readMode"),
        ("maxRecordsPerFetch", "here it is maxOffsetsPerTrigger"),
        ("kinesis.executor.maxFetchRecordsPerShard", "here it is maxOffsetsPerTrigger"),
        ("awsSecretKey", "credentials come from where AWS's own libraries look for them"),
        ("shardFetchInterval", "efo paces its own reads"),
    ],
)
def test_an_option_of_another_connector_is_reported_by_its_name_here(name, message):
    with pytest.raises(ConfigurationError, match=f"has no option '{name}': {message}"):
        parse({**LOG, name: "x"}, {})


def test_each_option_that_another_connector_is_reported_exists_here():
    for option in set(HERE.values()):
        assert option in {*_SETTINGS, *NAMES}
        assert all(name in PAGE for name in HERE)


def test_a_position_may_be_in_milliseconds_or_iso():
    times = [
        stream_of(initialPosition=text)[0].consumer.position for text in ("1700000000500", "2023-11-14T22:13:20.5Z")
    ]
    assert times == [Position.at_timestamp(1_700_000_000.5)] * 2


@pytest.mark.parametrize("text", ["9" * 30, "17:00"])
def test_a_position_that_is_no_time_is_refused(text):
    with pytest.raises(ConfigurationError, match="initialPosition"):
        stream_of(initialPosition=text)
