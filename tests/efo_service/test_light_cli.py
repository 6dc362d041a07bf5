"""The commands of the extra `cli` work without all that only the extra `service` has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

import efo.sync
from efo.testing import FakeKinesisThread
from efo_service.exit_codes import Exit
from tests.paths import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
ONLY_SERVICE = {"pyarrow", "starlette", "prometheus_client", "opentelemetry.sdk", "opentelemetry.exporter"}
"""What the extra `cli` is without."""
OTHERS = {"confluent_kafka", "numpy", "pyspark", "hypothesis", "obstore", "psycopg", "redis", "fastavro"}
RUN = f"""
import os, signal, sys, threading

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        is_missing = any(f"{{name}}.".startswith(f"{{one}}.") for one in {ONLY_SERVICE | OTHERS!r})
        return None if is_missing else self.finder.find_spec(name, path, target)

sys.meta_path = [Without(finder) for finder in sys.meta_path]
from efo_service.cli import call
for command in sys.argv[1:]:
    if command.startswith("fake"):  # it serves until SIGTERM
        threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    print("$", command, call(command.split()), flush=True)
"""


def run(fake: FakeKinesisThread, directory, *commands: str) -> tuple[dict[str, int], str, str]:
    """Run commands in a process without these packages; return their exit statuses, stdout and stderr."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "EFO_KINESIS__STREAM": "orders",
        "EFO_KINESIS__ENDPOINT_URL": fake.url,
        "EFO_KINESIS__CA_FILE": str(fake.ca_file),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, *commands],
        input="one\ntwo\n", capture_output=True, text=True, env=environment, cwd=directory, timeout=120, check=False,
    )  # fmt: skip
    found = dict(re.findall(r"^\$ (.*) (\d+)$", done.stdout, re.MULTILINE))
    return {command: int(status) for command, status in found.items()}, done.stdout, done.stderr


@pytest.fixture
def fake():
    with FakeKinesisThread() as running:
        running.create_stream("orders", 2)
        yield running


def test_commands_work_without_the_packages_of_a_service(fake, tmp_path, monkeypatch):
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    leases = tmp_path / "leases.sqlite"
    efo.sync.consume("orders", print, application="app", leases=leases, ca_file=fake.ca_file, until="now")
    of_workers = "--stream orders --application app --leases leases.sqlite"
    commands = [
        "put orders",
        "tail orders --from trim_horizon --until now --limit 1",
        "consumers list --stream orders",
        f"leases list {of_workers}",
        f"shards {of_workers}",
        "doctor --json",
        "fake --port 0 --streams clicks:2",
    ]
    statuses, stdout, stderr = run(fake, tmp_path, *commands)
    assert statuses == dict.fromkeys(commands, Exit.OK), stdout + stderr
    assert "one" in stdout
    assert "shardId-000000000001" in stdout


def test_a_command_that_needs_more_says_what_to_install(fake, tmp_path):
    statuses, _, stderr = run(fake, tmp_path, "log list", "run")
    assert set(statuses.values()) == {Exit.UNAVAILABLE}
    assert stderr.count("pip install 'efo[service]'") == 2
    assert "Traceback" not in stderr


def test_what_the_extra_installs_is_a_part_of_service_and_testing():
    names = {extra: {Requirement(text).name for text in texts} for extra, texts in EXTRAS.items()}
    assert names["cli"] <= names["service"] | names["testing"]
    assert not names["cli"] & {"pyarrow", "starlette", "hypothesis"}
