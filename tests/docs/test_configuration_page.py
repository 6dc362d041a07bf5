"""docs/configuration.md: its examples load, and its names exist."""

from __future__ import annotations

import re

import pytest

from efo_service.config.loading import load_all
from tests.paths import ROOT

PAGE = (ROOT / "docs/configuration.md").read_text()
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_loads(tmp_path, number):
    path = tmp_path / "efo.toml"
    path.write_text(EXAMPLES[number])
    assert load_all(path).streams


def test_the_example_of_many_streams_is_what_it_says(tmp_path):
    path = tmp_path / "efo.toml"
    path.write_text(EXAMPLES[0])
    streams = load_all(path).streams
    assert [(s.kinesis.stream_name, s.topic, s.consumer.application) for s in streams.values()] == [
        ("orders", "orders", "billing"),
        ("web-clicks", "web-clicks", "billing"),
    ]


def test_the_named_events_are_logged():
    named = set(re.findall(r"`(stream_failed|reload_failed|restart_needed|reloaded)`", PAGE))
    code = "".join(path.read_text() for path in (ROOT / "service/efo_service/streams").glob("*.py"))
    assert {name for name in named if f'"{name}"' in code} == named
    assert len(named) == 4
