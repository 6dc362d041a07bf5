"""The environment of a command in a test: a fake Kinesis, and nothing of the shell that runs the tests."""

from __future__ import annotations

import os

import pytest

from efo.testing import FakeKinesisThread

ACCESS_KEY_ID = "AKIDEXAMPLE"
SECRET_ACCESS_KEY = "the-secret"


def use_fake(monkeypatch: pytest.MonkeyPatch, fake: FakeKinesisThread, **settings: object) -> None:
    """Let commands use a fake, with these settings alone: `KINESIS__STREAM="orders"` is `[kinesis] stream`."""
    for name in [name for name in os.environ if name.startswith(("EFO_", "AWS_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "AWS_REGION": "us-east-1",
        "EFO_KINESIS__ENDPOINT_URL": fake.url,
        "EFO_KINESIS__CA_FILE": fake.ca_file,
        **{f"EFO_{name}": value for name, value in settings.items()},
    }.items():
        monkeypatch.setenv(name, str(value))
