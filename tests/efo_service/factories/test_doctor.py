"""Which checks `efo doctor` makes for a configuration."""

import pytest

from efo_service.config.loading import load
from efo_service.factories.doctor import open_checks

ALWAYS = {
    "region", "tls", "clock", "kinesis:ListShards", "fan-out consumer", "lease store", "service port", "decoder",
    "java",
}  # fmt: skip


async def names(tmp_path, text):
    path = tmp_path / "efo.toml"
    path.write_text(f'[kinesis]\nstream = "orders"\n{text}')
    async with open_checks(load(path), 5.0) as checks:
        found = [check.name for check in checks]
        for number, check in enumerate(checks):
            assert set(check.needs) <= set(found[:number])
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"lease directory", "lease disk", "log directory", "log topic", "log disk"}),
        ('[relay]\ndead_letters = "refused"', {"log topic", "log dead letters"}),
        ('[relay]\nsink = "jsonl"', {"jsonl file"}),
        ('[relay]\nsink = "jsonl"\njsonl_file = "a.jsonl"', {"jsonl file", "jsonl disk"}),
        ('[relay]\nsink = "jsonl"\ndead_letters = "refused"', {"jsonl file", "log dead letters", "log disk"}),
        (
            '[relay]\nsink = "kafka"\ndead_letters = "refused"',
            {"kafka brokers", "kafka topic", "kafka dead letters", "kafka checkpoint topic", "kafka transactional id"},
        ),
        ("[pipeline]\nmetrics_port = 9100", {"pipeline port"}),
    ],
)
async def test_each_sink_has_its_own_checks(tmp_path, text, expected):
    found = await names(tmp_path, text)
    assert found >= ALWAYS | expected
    others = {"log", "jsonl", "kafka"} - {name.split()[0] for name in expected}
    if "relay" in text:
        assert [name for name in found if name.split()[0] in others] == []


async def test_only_sqlite_needs_a_directory_and_a_disk(tmp_path):
    found = await names(tmp_path, '[leases]\nstore = "dynamodb"')
    assert "lease store writes" in found
    assert found & {"lease directory", "lease disk"} == set()


@pytest.mark.parametrize(
    ("text", "variable", "source"),
    [
        ('region = "eu-west-1"', None, "eu-west-1, from [kinesis] region"),
        ("", "AWS_REGION", "us-east-2, from AWS_REGION"),
        ("", "AWS_DEFAULT_REGION", "us-east-2, from AWS_DEFAULT_REGION"),
    ],
)
async def test_the_source_of_the_region_is_named(tmp_path, monkeypatch, text, variable, source):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "us-east-2")
    path = tmp_path / "efo.toml"
    path.write_text(f'[kinesis]\nstream = "orders"\nendpoint_url = "http://127.0.0.1:1"\n{text}')
    async with open_checks(load(path), 5.0) as checks:
        outcome = await checks[0].run()
    assert outcome.detail.startswith(source)


async def test_the_region_of_the_streams_arn_wins_over_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    path = tmp_path / "efo.toml"
    path.write_text('[kinesis]\nstream = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"')
    async with open_checks(load(path), 5.0) as checks:
        outcome = await checks[0].run()
    assert outcome.detail.startswith("eu-west-1, from the stream's ARN; the endpoint is https://kinesis.eu-west-1.")
