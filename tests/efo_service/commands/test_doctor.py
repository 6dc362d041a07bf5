"""`efo doctor` as a whole command, against FakeKinesis over TLS."""

import json
import os
import socket

import pytest

from efo.testing import FakeKinesisThread
from efo.testing.faults import Refuse
from efo.testing.faults.script import When
from efo_service.cli import call
from efo_service.exit_codes import Exit
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from tests.environment import use_fake

SLOW_MACHINE = ("--timeout", "60")
"""The time limits themselves are tested under virtual time."""


@pytest.fixture
def kinesis():
    with FakeKinesisThread() as fake:
        fake.create_stream("orders", shards=2)
        yield fake


@pytest.fixture(autouse=True)
def environment(kinesis, tmp_path, monkeypatch):
    use_fake(
        monkeypatch,
        kinesis,
        KINESIS__STREAM="orders",
        LEASES__PATH=tmp_path / "var" / "leases.sqlite",
        RELAY__DIRECTORY=tmp_path / "var" / "log",
        SERVICE__PORT=0,
    )


@pytest.fixture
def doctor(capsys):
    """Return a function that runs `efo doctor --json`, and returns its exit code and the checks by name."""

    def run():
        code = call(["doctor", "--json", *SLOW_MACHINE])
        document = json.loads(capsys.readouterr().out)
        checks = {check["name"]: check for check in document["checks"]}
        assert document["failed"] == len(failed(checks))
        assert len(checks) == len(document["checks"])
        return code, checks

    return run


def failed(checks):
    return [name for name, check in checks.items() if check["result"] == "failed"]


def test_a_host_on_which_the_service_can_run_passes_and_nothing_is_written(doctor, tmp_path):
    code, checks = doctor()
    assert (code, failed(checks)) == (Exit.OK, [])
    assert checks["region"]["detail"].startswith("us-east-1, from AWS_REGION")
    assert checks["fan-out consumer"]["result"] == "passed"
    assert checks["kinesis:SubscribeToShard"]["detail"] == "allowed; nothing of this name exists"
    assert checks["kinesis:RegisterStreamConsumer"]["result"] == "not tested"
    assert checks["java"]["result"] == "not tested"
    assert all(set(check) == {"name", "result", "detail", "remedy"} for check in checks.values())
    assert "the-secret" not in str(checks)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def two_streams(kinesis, tmp_path, monkeypatch):
    """Return a file with two streams, of which the second does not exist."""
    monkeypatch.delenv("EFO_KINESIS__STREAM")
    path = tmp_path / "efo.toml"
    path.write_text('[streams.orders.cloudwatch]\nlevel = "summary"\n[streams.clicks]\n')
    return path


def test_all_streams_of_a_file_are_checked_and_the_worst_is_the_exit_code(two_streams, capsys):
    code = call(["doctor", "--json", "--config", str(two_streams), *SLOW_MACHINE])
    document = json.loads(capsys.readouterr().out)
    failures = {
        stream["stream"]: failed({check["name"]: check for check in stream["checks"]}) for stream in document["streams"]
    }
    assert failures == {"orders": [], "clicks": ["stream"]}
    assert (code, document["failed"]) == (Exit.UNAVAILABLE, 1)
    cloudwatch = [c for c in document["streams"][0]["checks"] if c["name"] == "cloudwatch:PutMetricData"]
    assert [check["result"] for check in cloudwatch] == ["not tested"]


def test_each_of_several_streams_has_its_heading_and_one_can_be_chosen(two_streams, capsys):
    arguments = ["--config", str(two_streams), *SLOW_MACHINE]
    assert call(["doctor", *arguments]) is Exit.UNAVAILABLE
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("stream ")] == ["stream orders", "stream clicks"]
    assert sum("checks: " in line for line in lines) == 2
    assert call(["doctor", "--stream", "orders", *arguments]) is Exit.OK
    assert "stream " not in capsys.readouterr().out.splitlines()[0]


def test_a_denied_permission_exits_with_69_and_names_the_action(kinesis, doctor):
    kinesis.inject(Refuse("AccessDeniedException", "not authorized", status=400), When(operation="ListShards", times=9))
    code, checks = doctor()
    assert (code, failed(checks)) == (Exit.UNAVAILABLE, ["kinesis:ListShards"])
    assert "kinesis:ListShards on arn:aws:kinesis:us-east-1:" in checks["kinesis:ListShards"]["remedy"]


def test_missing_credentials_exit_with_78(doctor, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for name, value in {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)
    code, checks = doctor()
    assert (code, failed(checks)) == (Exit.CONFIGURATION, ["credentials"])
    assert checks["stream"]["detail"] == "credentials failed"


def test_a_port_of_another_program_exits_with_69(doctor, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("EFO_SERVICE__PORT", str(server.getsockname()[1]))
        code, checks = doctor()
    assert (code, failed(checks)) == (Exit.UNAVAILABLE, ["service port"])


def test_beside_a_running_writer_it_passes_and_disturbs_nothing(doctor, tmp_path):
    writer = open_partition(
        DiskFiles(tmp_path / "var" / "log"), "orders", "orders", "shardId-000000000000", lambda: 0.0
    )
    code, checks = doctor()
    assert (code, failed(checks)) == (Exit.OK, [])
    assert f"1 of them open in process {os.getpid()}" in checks["log topic"]["detail"]
    writer._opened._epoch.check()
    writer.close()


def test_for_people_it_writes_a_list(kinesis, capsys):
    assert call(["doctor", *SLOW_MACHINE]) == Exit.OK
    output = capsys.readouterr()
    assert "clock: this host's clock is that of the service" in output.out
    assert "RegisterStreamConsumer: not tested: " in output.out
    assert output.out.splitlines()[-1].endswith(" not tested")
    assert output.err == ""


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan"])
def test_a_time_limit_that_is_none_is_refused(seconds, capsys):
    assert call(["doctor", "--timeout", seconds]) == Exit.USAGE
    assert "--timeout" in capsys.readouterr().err
