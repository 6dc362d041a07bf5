"""[relay.kafka]: a nested table with secrets that the file may not contain."""

from __future__ import annotations

import json
from math import inf

import pytest

from efo.errors import ConfigurationError
from efo_service.config.loading import load
from efo_service.config.rendering import resolved, to_toml
from tests.paths import ROOT

HEAD = '[kinesis]\nstream = "orders"\n[relay.kafka]\n'
SASL = f'{HEAD}security_protocol = "sasl_ssl"\n'


@pytest.fixture
def load_text(tmp_path):
    def load_text(text: str):
        path = tmp_path / "efo.toml"
        path.write_text(text)
        return load(path)

    return load_text


WRONG = {
    "unknown key": ("bootstrap = 1", "4: [relay.kafka] bootstrap: unknown key: did you mean 'bootstrap_servers'?"),
    "unknown placeholder": ('topic = "{region}"', "4: [relay.kafka] topic: '{region}' is not a topic"),
    "placeholder with a conversion": ('topic = "{stream!r}"', "is not a topic"),
    "open brace": ('topic = "a{"', "is not a topic template"),
    "invalid topic characters": ('topic = "a b"', "is not a topic"),
    "unknown delivery": ('delivery = "twice"', "4: [relay.kafka] delivery: expected 'exactly_once'"),
    "commit interval too short": (
        "commit_seconds = 0.001",
        "4: [relay.kafka] commit_seconds: expected greater",
    ),
    "security protocol without a mechanism": (
        'security_protocol = "sasl_ssl"',
        "3: [relay.kafka]: security_protocol sasl_ssl",
    ),
    "mechanism without a security protocol": ('sasl_mechanism = "PLAIN"', "belong together"),
    "key without a certificate": (f'key_file = "{__file__}"', "certificate_file and key_file belong together"),
    "PLAIN without a user": (
        'security_protocol = "sasl_ssl"\nsasl_mechanism = "PLAIN"',
        "sasl_mechanism PLAIN needs sasl_username and sasl_password: set secrets as EFO_RELAY__KAFKA__<KEY>",
    ),
    "OAUTHBEARER without a client": (
        'security_protocol = "sasl_ssl"\nsasl_mechanism = "OAUTHBEARER"',
        "needs oauth_token_url and",
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_with_the_location_of_the_error(load_text, text, expected):
    with pytest.raises(ConfigurationError) as caught:
        load_text(HEAD + text)
    assert expected in str(caught.value)


@pytest.mark.parametrize("key", ["key_password", "sasl_password", "oauth_client_secret"])
def test_a_secret_in_the_file_is_refused_and_not_shown_in_the_error(load_text, key):
    with pytest.raises(ConfigurationError, match=rf"\[relay.kafka\] {key} is a secret: .*") as caught:
        load_text(f'{HEAD}{key} = "hunter2"')
    assert f"set EFO_RELAY__KAFKA__{key.upper()} in the environment" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_secret_from_the_environment_is_masked(load_text, monkeypatch):
    monkeypatch.setenv("EFO_RELAY__KAFKA__SASL_PASSWORD", "hunter2")
    settings = load_text(f'{SASL}sasl_mechanism = "PLAIN"\nsasl_username = "me"')
    password = settings.relay.kafka.sasl_password
    assert password is not None
    assert password.get_secret_value() == "hunter2"
    tables = resolved(settings)
    assert tables["relay"]["kafka"]["sasl_username"] == "me"
    assert "hunter2" not in json.dumps(tables) + to_toml(tables) + repr(settings)


def test_efo_kafka_toml_relays_to_kafka_and_reads_it():
    settings = load(ROOT / "config" / "efo.kafka.toml")
    assert (settings.relay.sink, settings.topic, settings.pipeline.source) == ("kafka", "kinesis.orders", "kafka")
    assert settings.relay.commit_interval == 0.2


def test_the_output_of_check_config_loads_to_the_same_settings(load_text):
    settings = load_text(f'{HEAD}topic = "kinesis.{{stream}}"\ncreate_topics = false')
    assert load_text(to_toml(resolved(settings))) == settings


def test_the_environment_overrides_the_nested_table_and_is_named_in_errors(load_text, monkeypatch):
    monkeypatch.setenv("EFO_RELAY__KAFKA__PARTITIONS", "3")
    assert load_text(HEAD).relay.kafka.partitions == 3
    monkeypatch.setenv("EFO_RELAY__KAFKA__PARTITIONS", "0")
    with pytest.raises(ConfigurationError, match="environment EFO_RELAY__KAFKA__PARTITIONS: expected greater"):
        load_text(HEAD)


def test_brokers_that_are_away_are_waited_for_unless_a_time_is_set(load_text):
    assert load_text(HEAD).relay.kafka.longest_retry == inf
    assert load_text(f"{HEAD}retry_seconds = 5").relay.kafka.longest_retry == 5
