"""The table [relay.kafka]: a table within a table, with secrets that the file may not hold."""

from __future__ import annotations

import json

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
    "template": ('topic = "{region}"', "4: [relay.kafka] topic: '{region}' is no topic"),
    "format": ('topic = "{stream!r}"', "is no topic"),
    "brace": ('topic = "a{"', "is no template"),
    "letters": ('topic = "a b"', "is no topic"),
    "delivery": ('delivery = "twice"', "4: [relay.kafka] delivery: Input should be 'exactly_once'"),
    "interval": ("commit_milliseconds = 1", "4: [relay.kafka] commit_milliseconds: Input should be greater"),
    "no mechanism": ('security_protocol = "sasl_ssl"', "3: [relay.kafka]: security_protocol sasl_ssl"),
    "no protocol": ('sasl_mechanism = "PLAIN"', "belong together"),
    "half a pair": (f'key_file = "{__file__}"', "certificate_file and key_file belong together"),
    "no user": (
        'security_protocol = "sasl_ssl"\nsasl_mechanism = "PLAIN"',
        "sasl_mechanism PLAIN needs sasl_username and sasl_password; a secret is set as EFO_RELAY__KAFKA__<KEY>",
    ),
    "no client": ('security_protocol = "sasl_ssl"\nsasl_mechanism = "OAUTHBEARER"', "needs oauth_token_url and"),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_with_its_place(load_text, text, expected):
    with pytest.raises(ConfigurationError) as caught:
        load_text(HEAD + text)
    assert expected in str(caught.value)


@pytest.mark.parametrize("key", ["key_password", "sasl_password", "oauth_client_secret"])
def test_a_secret_in_the_file_is_refused_and_never_repeated(load_text, key):
    with pytest.raises(ConfigurationError, match=rf"\[relay.kafka\] {key} is a secret: .*") as caught:
        load_text(f'{HEAD}{key} = "hunter2"')
    assert f"set EFO_RELAY__KAFKA__{key.upper()} in the environment" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_secret_of_the_environment_is_masked(load_text, monkeypatch):
    monkeypatch.setenv("EFO_RELAY__KAFKA__SASL_PASSWORD", "hunter2")
    settings = load_text(f'{SASL}sasl_mechanism = "PLAIN"\nsasl_username = "me"')
    password = settings.relay.kafka.sasl_password
    assert password is not None
    assert password.get_secret_value() == "hunter2"
    tables = resolved(settings)
    assert tables["relay"]["kafka"]["sasl_username"] == "me"
    assert "hunter2" not in json.dumps(tables) + to_toml(tables) + repr(settings)


def test_the_example_is_as_it_should_be():
    settings = load(ROOT / "config" / "efo.kafka.toml")
    assert (settings.relay.sink, settings.topic, settings.pipeline.source) == ("kafka", "kinesis.orders", "kafka")
    assert settings.relay.commit_seconds == 0.2


def test_what_is_printed_can_be_loaded_again(load_text):
    settings = load_text(f'{HEAD}topic = "kinesis.{{stream}}"\ncreate_topics = false')
    assert load_text(to_toml(resolved(settings))) == settings


def test_the_environment_reaches_the_inner_table_and_is_named(load_text, monkeypatch):
    monkeypatch.setenv("EFO_RELAY__KAFKA__PARTITIONS", "3")
    assert load_text(HEAD).relay.kafka.partitions == 3
    monkeypatch.setenv("EFO_RELAY__KAFKA__PARTITIONS", "0")
    with pytest.raises(ConfigurationError, match="environment EFO_RELAY__KAFKA__PARTITIONS: Input should be greater"):
        load_text(HEAD)
