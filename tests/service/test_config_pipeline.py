"""The table [pipeline]: what cannot work is refused at load, before Spark is started."""

from __future__ import annotations

import os

import pytest

from efo.errors import ConfigurationError
from service.config_file import load

HEAD = '[kinesis]\nstream = "orders"\n[pipeline]\n'


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("EFO_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def load_text(tmp_path):
    def load_text(text: str):
        path = tmp_path / "efo.toml"
        path.write_text(HEAD + text)
        return load(path)

    return load_text


WRONG = {
    "no schema": ('decode = "json"', '3: [pipeline]: decode = "json" needs value_schema'),
    "no decoder": ('value_schema = "id bigint"', '3: [pipeline]: decode = "raw" takes no value_schema'),
    "no Avro": (
        'decode = "avro"\nvalue_schema = "id bigint"',
        "3: [pipeline]: value_schema is not an Avro schema in JSON",
    ),
    "nowhere": ('output = ""', "4: [pipeline] output: String should have at least 1 character"),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_pipeline_is_refused_with_its_place(load_text, text, expected):
    with pytest.raises(ConfigurationError) as caught:
        load_text(text)
    assert expected in str(caught.value)
