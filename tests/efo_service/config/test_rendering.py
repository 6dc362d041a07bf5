"""The JSON Schema of the configuration: current, and of the same opinion as the loader."""

from __future__ import annotations

import json
import tomllib

import pytest
from jsonschema import Draft7Validator

from efo_service.config.rendering import schema
from tests.paths import ROOT

CHECK = Draft7Validator(json.loads(schema()))
FILES = sorted((ROOT / "config").glob("*.toml"))


def problems(text: str) -> list[str]:
    return ["/".join(map(str, error.absolute_path)) for error in CHECK.iter_errors(tomllib.loads(text))]


def test_efo_schema_json_is_current():
    assert (ROOT / "config/efo.schema.json").read_text() == schema(), "run: efo check-config --schema"


def test_it_is_a_schema():
    Draft7Validator.check_schema(json.loads(schema()))


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_the_files_of_the_repository_are_valid_and_name_it_first(path):
    text = path.read_text()
    assert problems(text) == []
    assert text.startswith("#:schema ./efo.schema.json\n")
    assert (path.parent / "efo.schema.json").exists()


def test_several_streams_are_valid():
    assert problems('[streams.a.relay.kafka]\ntopic = "{stream}"\n[streams.b-c.leases]\nmax_leases = 3') == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[relya]", ""),
        ("[relay]\ntopci = 'a'", "relay"),
        ("[relay]\ncommit_records = 0", "relay/commit_records"),
        ("[relay]\ncommit_records = 'many'", "relay/commit_records"),
        ("[consumer]\naggregates = 'all'", "consumer/aggregates"),
        ("[relay.kafka]\ncompression = 'rar'", "relay/kafka/compression"),
        ("[relay.kafka]\nsasl_password = 'hunter2'", "relay/kafka/sasl_password"),
        ("[leases]\nurl = 'redis://x'", "leases/url"),
        ("[service]\nport = 70000", "service/port"),
        ("[streams]", "streams"),
        ("[streams.a__b]", "streams"),
        ("[streams.a.service]", "streams/a"),
        ("[streams.a.leases]\nworker_id = 'w'", "streams/a/leases"),
        ("[streams.a.relay]\ncommit_records = 0", "streams/a/relay/commit_records"),
        ("[kinesis]\nstream = 'a'\n[streams.b]", "kinesis"),
    ],
)
def test_a_mistake_is_found_at_its_place(text, where):
    assert problems(text) == [where]


def test_every_setting_is_explained_and_secrets_name_their_variable():
    definitions = json.loads(schema())["definitions"]
    settings = [item for one in definitions.values() for item in one.get("properties", {}).values()]
    assert all("description" in item or "$ref" in item for item in settings)
    assert (
        "set EFO_RELAY__KAFKA__SASL_PASSWORD"
        in definitions["KafkaSettings"]["properties"]["sasl_password"]["description"]
    )
