"""Several streams in one file: layers, defaults, mistakes with their places."""

from __future__ import annotations

import pytest

from efo.errors import ConfigurationError
from efo_service.config.loading import load, load_all, load_for_stream
from efo_service.config.rendering import resolved_all, to_toml
from efo_service.config.settings import Settings
from efo_service.config.streams import clashes

TWO = """
[consumer]
application = "billing"
[relay]
commit_records = 7

[streams.orders.relay]
commit_records = 8

[streams.web-clicks.kinesis]
stream = "clicks"
"""


@pytest.fixture
def file(tmp_path):
    def file(text: str):
        path = tmp_path / "efo.toml"
        path.write_text(text)
        return path

    return file


@pytest.fixture
def load_text(file):
    return lambda text: load_all(file(text))


def mistake(load_text, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_text(text)
    return str(caught.value)


def test_a_file_without_streams_is_one_stream_with_the_name_of_its_stream(load_text):
    configuration = load_text('[kinesis]\nstream = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"')
    assert (list(configuration.streams), configuration.has_tables) == (["orders"], False)


def test_the_top_level_sections_are_the_defaults_of_all_streams(load_text):
    streams = load_text(TWO).streams
    assert list(streams) == ["orders", "web-clicks"]
    assert [s.consumer.application for s in streams.values()] == ["billing", "billing"]
    assert [s.relay.commit_records for s in streams.values()] == [8, 7]
    assert [s.kinesis.stream for s in streams.values()] == ["orders", "clicks"]
    assert [s.topic for s in streams.values()] == ["orders", "clicks"]


def test_nested_tables_are_merged_key_by_key(load_text):
    text = '[relay]\nsink = "kafka"\n[relay.kafka]\npartitions = 3\ncompression = "zstd"\n'
    streams = load_text(text + "[streams.a.relay.kafka]\npartitions = 5\n[streams.b]").streams
    found = [(s.relay.kafka.partitions, s.relay.kafka.compression) for s in streams.values()]
    assert found == [(5, "zstd"), (3, "zstd")]


def test_each_layer_overrides_the_one_before(load_text, monkeypatch):
    monkeypatch.setenv("EFO_RELAY__COMMIT_RECORDS", "20")
    monkeypatch.setenv("EFO_CONSUMER__APPLICATION", "shop")
    monkeypatch.setenv("EFO_STREAMS__WEB_CLICKS__RELAY__COMMIT_BYTES", "30")
    streams = load_text(TWO).streams
    assert [s.relay.commit_records for s in streams.values()] == [8, 20]
    assert {s.consumer.application for s in streams.values()} == {"shop"}
    monkeypatch.setenv("EFO_STREAMS__ORDERS__RELAY__COMMIT_RECORDS", "40")
    streams = load_text(TWO).streams
    assert [s.relay.commit_records for s in streams.values()] == [40, 20]
    assert streams["web-clicks"].relay.commit_bytes == 30


def test_a_secret_of_one_stream_is_set_in_the_environment(load_text, monkeypatch):
    assert "set EFO_STREAMS__WEB_CLICKS__LEASES__URL in the environment" in mistake(
        load_text, '[streams.web-clicks.leases]\nurl = "redis://x"'
    )
    monkeypatch.setenv("EFO_STREAMS__A__LEASES__URL", "redis://:hunter2@localhost")
    monkeypatch.setenv("EFO_LEASES__URL", "redis://other")
    streams = load_text('[leases]\nstore = "redis"\n[streams.a]\n[streams.b]').streams
    found = [s.leases.url.get_secret_value() for s in streams.values()]
    assert found == ["redis://:hunter2@localhost", "redis://other"]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("streams = 3", "[streams]", "is a table of tables: write [streams.NAME]"),
        ("[streams]", ":1: [streams]", "names no stream: write [streams.NAME] for each stream, or remove it"),
        ("[streams]\na = 1", ": [streams.a]", "a is a table: write [streams.a.kinesis]"),
        ('[streams."a b"]', "[streams.a b]", "not a name of a stream"),
        ("[streams.a__b]", ":1: [streams.a__b]", "not a name of a stream"),
        ("[streams.a-b]\n[streams.A_b]", ":2: [streams.A_b]", "differs from 'a-b' only in case or hyphens"),
        ("[streams.a.service]\nport = 1", ":1: [streams.a.service]", "are the process's: move them to [service]"),
        ("[streams.a]\nrelay = 1", ":2: [streams.a.relay]", "relay is a table: write [streams.a.relay]"),
        ('[streams.a.leases]\nworker_id = "w"', ":2: [streams.a.leases.worker_id]", "move it to [leases]"),
        ('[kinesis]\nstream = "a"\n[streams.b]', ":2: [kinesis] stream", "with [streams], each stream has its own"),
        ("[streams.a.relay]\ncommit_recrods = 1", ":2: [streams.a.relay] commit_recrods", "did you mean 'commit_rec"),
        ("[streams.a.relai]", ":1: [streams.a.relai]", "unknown table: did you mean 'relay'"),
        ("[relay]\ncommit_records = 0\n[streams.a]\n[streams.b]", ":2: [relay] commit_records", "greater than or eq"),
        ("[streams.a.relay]\ncommit_records = 0", ":2: [streams.a.relay] commit_records", "greater than or equal"),
        ('[streams.a.relay]\ndead_letters = "a"', ": [streams.a]: ", "is also the records' topic"),
        ('[streams.a.relay]\non_refused_record = "dead_letter"', ":1: [streams.a.relay]: ", "needs dead_letters"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_place_and_its_remedy(load_text, text, where, what):
    message = mistake(load_text, text)
    assert where in message
    assert what in message
    assert len(message.splitlines()) == 1  # that of a default is reported once


def test_the_mistakes_of_all_streams_are_reported_together(load_text):
    text = "[streams.a.relay]\ncommit_records = 0\n[streams.b.relay]\ncommit_bytes = 0"
    assert len(mistake(load_text, text).splitlines()) == 2


@pytest.mark.parametrize(
    ("variable", "what"),
    [
        ("EFO_STREAMS__ORDRES__RELAY__TOPIC", "no stream 'ordres': did you mean 'orders'?"),
        ("EFO_STREAMS__ORDERS__RELAI__TOPIC", "unknown section: did you mean 'relay'?"),
        ("EFO_STREAMS__ORDERS__RELAY", "names no setting: write EFO_STREAMS__<NAME>__<SECTION>__<KEY>"),
        ("EFO_STREAMS__ORDERS", "names no setting: write EFO_STREAMS__<NAME>__<SECTION>__<KEY>"),
        ("EFO_STREAMS__ORDERS__SERVICE__PORT", "the process's: set EFO_SERVICE__PORT"),
        ("EFO_STREAMS__ORDERS__RELAY__TOPPIC", "unknown key: did you mean 'topic'?"),
        ("EFO_STREAMS__ORDERS__RELAY__COMMIT_BYTES", "expected a valid integer"),
        ("EFO_STREAMS__ORDERS__LEASES__WORKER_ID", "set EFO_LEASES__WORKER_ID"),
    ],
)
def test_a_wrong_variable_of_a_stream_is_refused_by_name(load_text, monkeypatch, variable, what):
    monkeypatch.setenv(variable, "abc")
    message = mistake(load_text, TWO)
    assert f"environment {variable}: " in message
    assert what in message


def test_a_variable_of_a_stream_is_refused_if_the_file_has_no_streams(load_text, monkeypatch):
    monkeypatch.setenv("EFO_STREAMS__ORDERS__RELAY__TOPIC", "abc")
    assert "the configuration has no [streams]" in mistake(load_text, '[kinesis]\nstream = "orders"')


def test_one_of_several_streams_is_chosen_by_name(file):
    path = file(TWO)
    assert load(path, "web-clicks").kinesis.stream == "clicks"
    assert load(file("[streams.a]")).kinesis.stream == "a"  # the only one
    with pytest.raises(ConfigurationError, match="has 2 streams: choose one with --stream: orders, web-clicks"):
        load(file(TWO))
    with pytest.raises(ConfigurationError, match="--stream x: the configuration has no such stream: choose one of"):
        load(file(TWO), "x")


def test_tail_takes_a_configured_stream_by_any_of_its_names_or_another_with_the_top_level_settings(file):
    path = file('[kinesis]\nregion = "eu-west-1"\n[streams.orders.kinesis]\nregion = "us-east-1"\nstream = "old"')
    assert load_for_stream(path, "orders").kinesis.region == "us-east-1"
    assert load_for_stream(path, "old").kinesis.region == "us-east-1"
    assert load_for_stream(path, "new").kinesis.region == "eu-west-1"
    assert load_for_stream(path, None).kinesis.stream == "old"


def test_what_check_config_prints_loads_to_the_same_streams(load_text, monkeypatch):
    first = load_text(TWO)
    text = to_toml(resolved_all(first))
    assert "[streams.web-clicks.kinesis]" in text
    assert load_text(text) == first


def test_each_stream_may_have_a_role_to_assume(load_text):
    role = "arn:aws:iam::210987654321:role/reader"
    text = f'[streams.a]\n[streams.b.kinesis]\nrole_arn = "{role}"\nexternal_id = "x-1"'
    streams = load_text(text).streams
    assert streams["a"].kinesis.role is None
    found = streams["b"].kinesis.role
    assert (found.arn, found.external_id, found.session_name) == (role, "x-1", "efo")
    assert "external_id needs role_arn" in mistake(load_text, '[streams.a.kinesis]\nexternal_id = "x-1"')
    text = '[streams.a.kinesis]\nrole_arn = "reader"'
    assert "[streams.a.kinesis]: 'reader' is not the ARN of a role" in mistake(load_text, text)


CONSUMER = "arn:aws:kinesis:eu-west-1:210987654321:stream/a/consumer/fan:17"


def test_a_consumer_of_another_owner_is_given_by_its_arn(load_text):
    settings = load_text(f'[streams.a.consumer]\nconsumer_arn = "{CONSUMER}"').streams["a"]
    assert (settings.consumer.consumer_arn, settings.consumer.fan_out_consumer) == (CONSUMER, "fan")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[streams.a.consumer]\nconsumer_arn = "fan"', "is not the ARN of a fan-out consumer"),
        (f'[streams.a.consumer]\nconsumer_arn = "{CONSUMER}"\nconsumer_name = "fan"', "remove one of them"),
        (
            f'[streams.b.consumer]\nconsumer_arn = "{CONSUMER}"',
            "is of the stream arn:aws:kinesis:eu-west-1:210987654321:stream/a,",
        ),
    ],
)
def test_an_arn_that_is_not_of_the_streams_consumer_is_refused(load_text, text, what):
    assert what in mistake(load_text, text)


ARN = "arn:aws:kinesis:eu-west-1:{}:stream/a"


def settings(stream: str, *, kinesis=None, consumer=None, leases=None, relay=None, cloudwatch=None) -> Settings:
    return Settings(
        kinesis={"stream": stream, **(kinesis or {})},
        consumer=consumer or {},
        leases=leases or {},
        relay=relay or {},
        cloudwatch=cloudwatch or {},
    )


def found(one: Settings, other: Settings) -> list[str]:
    return list(clashes({"one": one, "other": other}))


def test_two_streams_with_the_defaults_share_nothing():
    assert found(settings("a"), settings("b")) == []


def test_a_sentence_names_both_streams_and_the_remedy():
    (sentence,) = found(settings("a"), settings("b", relay={"topic": "a"}))
    assert sentence.startswith("[streams.one] and [streams.other]: both write the topic 'a' of the log ")
    assert sentence.endswith("choose another [relay] topic, dead_letters or directory for one of them")


KAFKA = {"sink": "kafka"}
DYNAMODB = {"store": "dynamodb"}
SUMMARY = {"level": "summary"}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (settings("a"), settings("a", relay={"topic": "b"}), "both are the application 'efo' on the stream 'a'"),
        (
            settings("a"),
            settings("a", consumer={"application": "x", "consumer_name": "efo"}, relay={"topic": "b"}),
            "as the fan-out consumer 'efo'",
        ),
        (settings("a"), settings("b", relay={"directory": "var/../var/log", "topic": "a"}), "the topic 'a' of the log"),
        (settings("a", relay={"dead_letters": "x"}), settings("b", relay={"dead_letters": "x"}), "the topic 'x'"),
        (settings("a", relay={"dead_letters": "b"}), settings("b"), "the topic 'b' of the log"),
        (settings("a", relay={"sink": "jsonl"}), settings("b", relay={"sink": "jsonl"}), "the JSON lines to stdout"),
        (
            settings("a", relay={"sink": "jsonl", "jsonl_file": "x/../f"}),
            settings("b", relay={"sink": "jsonl", "jsonl_file": "f"}),
            "/f: choose another [relay] jsonl_file",
        ),
        (settings("a", relay=KAFKA), settings("b", relay={**KAFKA, "topic": "a"}), "of the Kafka cluster"),
        (settings("a", leases=DYNAMODB), settings("b", leases=DYNAMODB), "the DynamoDB table 'efo'"),
        (
            settings("a", leases=DYNAMODB),
            settings("b", leases={**DYNAMODB, "dynamodb": {"stream_id": "123456789012:b:1"}}),
            "the DynamoDB table 'efo'",
        ),
        (settings("a", cloudwatch=SUMMARY), settings("b", cloudwatch=SUMMARY), "the CloudWatch namespace 'efo'"),
    ],
)  # fmt: skip
def test_what_only_one_stream_may_have_is_refused(one, other, expected):
    (sentence,) = found(one, other)
    assert expected in sentence
    assert found(other, one) != []


def stream_id(number: int) -> dict:
    return {**DYNAMODB, "dynamodb": {"stream_id": f"123456789012:s:{number}"}}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (settings("a"), settings("a", consumer={"application": "x"}, relay={"topic": "b"})),
        (settings("a", leases=stream_id(1)), settings("b", leases=stream_id(2))),
        (settings("a", leases=DYNAMODB), settings("b", leases={**DYNAMODB, "dynamodb": {"table": "x-2"}})),
        (settings("a", relay={"directory": "x"}), settings("b", relay={"directory": "y", "topic": "a"})),
        (settings("a", cloudwatch=SUMMARY), settings("b")),
        (settings("a", cloudwatch=SUMMARY), settings("b", cloudwatch={**SUMMARY, "namespace": "other"})),
        (settings("a", cloudwatch=SUMMARY), settings("b", cloudwatch={**SUMMARY, "region": "us-east-1"})),
        (
            settings("a", relay={**KAFKA, "dead_letters": "x"}),
            settings("b", relay={**KAFKA, "dead_letters": "x"}),  # each letter names its stream
        ),
        (
            settings(ARN.format("111111111111")),
            settings(
                ARN.format("222222222222"),
                consumer={"application": "x", "consumer_name": "efo"},
                relay={"topic": "b"},
            ),
        ),
        (
            settings("a", kinesis={"region": "eu-west-1"}),
            settings(
                "a",
                kinesis={"region": "us-east-1"},
                consumer={"application": "x", "consumer_name": "efo"},
                relay={"topic": "b"},
            ),
        ),
    ],
)  # fmt: skip
def test_what_differs_is_not_refused(one, other):
    assert found(one, other) == []
