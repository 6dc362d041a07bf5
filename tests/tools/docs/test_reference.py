"""The pages that are made from the code have everything that the code has."""

from __future__ import annotations

import re
from typing import get_args

import efo
from efo import events
from efo_service.config.section import section_of
from efo_service.config.settings import Settings
from tools.docs import reference
from tools.docs.api_reference import api
from tools.prometheus_rules import ALERTS


def test_every_setting_has_its_row():
    page = reference.configuration()
    assert "## `[kinesis]`" in page
    assert "| `stream`<br>`EFO_KINESIS__STREAM` | required | Name or ARN of the stream. |" in page
    assert "| `port`<br>`EFO_SERVICE__PORT` | `8080` |" in page
    assert "| `EFO_LEASES__URL`, in the environment alone |" in page
    assert "## `[leases.dynamodb]`" in page
    count = sum(len(section_of(field).model_fields) for field in Settings.model_fields.values())
    assert page.count("EFO_") >= count


def test_every_command_has_its_help():
    page = reference.command_line()
    for name in ("efo", "efo run", "efo log adopt", "efo leases import", "efo completion", "efo top"):
        assert f"\n## `{name}`\n\n```text\nUsage: {name} " in page


def test_every_alert_has_its_section_with_a_way_to_the_runbook():
    page = reference.alerts()
    for alert in ALERTS:
        assert f"\n## {alert.name}\n" in page
        assert f"(../runbook.md#{alert.name.lower()})" in page


def test_every_event_has_its_level_and_fields():
    page = reference.log_lines()
    assert page.count("\n| `") == len(get_args(events.Event)) + len(reference.outage_lines()) + sum(
        1 for _ in reference.service_lines()
    )
    assert "| `lease_lost` | info or warning | shard_id, reason | This worker no longer holds a lease." in page
    assert "| `shard_stopped` | info or error | shard_id, error_type, detail |" in page
    assert "| `batch_delivered` | debug |" in page
    assert "| `started` | info | version, commit, url | `efo_service.app` |" in page


def test_every_public_name_has_its_docstring():
    page = api()
    for name in efo.__all__:
        assert f"efo.{name}" in page
    assert ":::{py:function} efo.consume(" in page
    assert "\n:async:\n" in page
    assert ":::{py:method} status() -> ConsumerStatus" in page


def test_no_member_of_a_class_is_described_twice():
    of_classes = re.split(r"^:+\{py:class\}", api(), flags=re.MULTILINE)[1:]
    assert len(of_classes) > 20
    for text in of_classes:
        members = re.findall(r"^:+\{py:(?:method|property|attribute)\} (\w+)", text, re.MULTILINE)
        assert len(members) == len(set(members)), text.partition("\n")[0]
