"""config/iam: each policy allows what efo calls in its mode, on the resources that it calls it on, and nothing else."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
from pathlib import Path

import pytest
import redis
import trio

import efo
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.testing import FakeKinesisThread, When
from efo.testing.faults.injection import FaultInjector
from efo.testing.faults.kinds import Refuse
from efo.testing.recording.recorder import RecordingWriter
from efo_service.cli import call
from efo_service.exit_codes import Exit
from proofs.local_servers.redis import serve_redis
from tests.environment import use_fake
from tests.paths import ROOT

IAM = ROOT / "config" / "iam"
STORE = ROOT / "efo/leases/stores/dynamodb"
OF_CONSUMER = {"DeregisterStreamConsumer", "DescribeStreamConsumer", "SubscribeToShard", "TagResource"}
"""The actions of Kinesis on a consumer (AWS: service authorization reference)."""
OF_ACCOUNT = {"DescribeAccountSettings", "DescribeLimits"}
"""Those on no resource. All others are on a stream."""


def statements(*names):
    return [one for name in names for one in json.loads((IAM / f"{name}.json").read_text())["Statement"]]


def allowed(service, *names):
    actions = (action.split(":") for one in statements(*names) for action in one["Action"])
    return {action for prefix, action in actions if prefix == service}


def called_operations(path):
    """Return the operations that a module calls by the names of AWS."""
    calls = {"call", "_call", "_call_about_stream"}
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in calls:
            names |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
    return {name.title().replace("_", "") for name in names}


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread() as fake:
        yield fake


@pytest.fixture
def numbered(calls, kinesis):
    """Return the shard id and the sequence number of a record in the stream of the test."""
    return kinesis.put(os.environ["EFO_KINESIS__STREAM"], "a", b"1")


@pytest.fixture
def calls(kinesis, monkeypatch, request, tmp_path):
    """A stream of its own for each test; the operations that were called."""
    stream = re.sub(r"\W", "-", request.node.name)[:60]
    kinesis.create_stream(stream, 1, distribution="USER_PARTITION_KEY")  # on demand: doctor asks for the quota then
    kinesis.put(stream, "a", b"1")
    use_fake(
        monkeypatch,
        kinesis,
        KINESIS__STREAM=stream,
        LEASES__PATH=tmp_path / "leases.sqlite",
        RELAY__DIRECTORY=tmp_path / "log",
        SERVICE__PORT=0,
    )
    seen = set()
    respond = FaultInjector.call

    def record(self, operation, *rest):
        seen.add(operation)
        return respond(self, operation, *rest)

    monkeypatch.setattr(FaultInjector, "call", record)
    return seen


async def read_one(kinesis, read_mode="fanout"):
    """Read a record as `efo run` does: find or register the consumer, list the shards, subscribe or poll."""
    with trio.fail_after(60), trio.CancelScope() as scope:

        async def handle(_batch):
            scope.cancel()

        await efo.consume(
            os.environ["EFO_KINESIS__STREAM"],
            handle,
            application="efo",
            leases="memory:",
            settings=efo.ConsumerSettings(read_mode=read_mode),
            endpoint_url=kinesis.url,
            ca_file=str(kinesis.ca_file),
        )


async def test_a_service_with_an_existing_consumer_calls_what_run_allows(calls, kinesis):
    await trio.to_thread.run_sync(kinesis.register, os.environ["EFO_KINESIS__STREAM"], "efo")
    calls.clear()
    await read_one(kinesis)
    assert calls == allowed("kinesis", "run")


async def test_a_service_that_registers_its_consumer_calls_what_run_and_register_allow(calls, kinesis):
    await read_one(kinesis)
    assert calls == allowed("kinesis", "run", "register")


async def test_a_service_that_polls_calls_what_read_allows(calls, kinesis):
    await read_one(kinesis, "polling")
    assert calls == allowed("kinesis", "read")


async def test_a_service_that_falls_back_to_polling_calls_what_run_register_and_read_allow(calls, kinesis):
    denied = (
        Refuse("AccessDeniedException"),
        When(operation="SubscribeToShard", stream=os.environ["EFO_KINESIS__STREAM"]),
    )
    await trio.to_thread.run_sync(kinesis.inject, *denied)
    await read_one(kinesis, "auto")
    assert calls == allowed("kinesis", "run", "register", "read")


def test_doctor_calls_what_doctor_allows(calls):
    assert call(["doctor", "--timeout", "60"]) == Exit.OK
    assert calls == allowed("kinesis", "doctor")


def test_tail_and_shards_call_what_read_allows(calls):
    only_of_services = {"DescribeStreamSummary"}
    assert call(["tail", "--from", "trim_horizon", "--limit", "1"]) == Exit.OK
    assert calls == allowed("kinesis", "read") - only_of_services

    async def create():
        async with SqliteLeaseStore(Path(os.environ["EFO_LEASES__PATH"]), "efo", os.environ["EFO_KINESIS__STREAM"]):
            pass

    trio.run(create)
    assert call(["shards"]) == Exit.OK
    assert calls == allowed("kinesis", "read") - only_of_services


def test_put_calls_what_put_allows(calls, tmp_path):
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    assert call(["put", os.environ["EFO_KINESIS__STREAM"], str(tmp_path / "lines")]) == Exit.OK
    assert calls == allowed("kinesis", "put")


def test_record_calls_what_record_allows(calls, tmp_path, monkeypatch):
    monkeypatch.setattr(RecordingWriter, "data", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert call(["record", "--output", str(tmp_path / "recording"), "--from", "trim_horizon"]) == Exit.OK
    assert calls == allowed("kinesis", "record")


def test_migrate_calls_what_migrate_allows(calls, servers, numbered):
    url = servers.url(serve_redis)
    shard, number = numbered
    with redis.Redis.from_url(url) as client:
        client.set(f"efo:checkpoint:{os.environ['EFO_KINESIS__STREAM']}:{shard}", number)
    assert call(["migrate", "harlow", url, "--look", "0", "--write", "--yes"]) == Exit.OK
    assert calls == allowed("kinesis", "migrate")
    assert call(["migrate", "harlow", url, "--look", "0", "--back"]) == Exit.OK
    assert calls == allowed("kinesis", "migrate", "read")
    called = called_operations(ROOT / "service/efo_service/operations/migration/stores/dynamodb.py")
    assert called == allowed("dynamodb", "migrate")


def test_the_commands_for_consumers_call_what_consumers_allows(calls):
    for command in (["list"], ["register", "--name", "other"], ["deregister", "other", "--yes", "--force"]):
        assert call(["consumers", *command]) == Exit.OK
    assert calls == allowed("kinesis", "consumers")


def test_together_the_policies_allow_every_call_of_kinesis_that_efo_can_make():
    every = called_operations(ROOT / "efo/kinesis/aws/control_plane.py") | {"SubscribeToShard", "PutRecords"}
    every |= {"TagResource"}  # for the tags of RegisterStreamConsumer
    assert len(every) == 13
    assert every == allowed("kinesis", *(path.stem for path in IAM.glob("*.json")))


def test_the_policies_for_leases_allow_what_the_store_calls():
    called = called_operations(STORE / "store.py") | called_operations(STORE / "table.py") | {"PutItem"}
    creating = allowed("dynamodb", "leases-dynamodb-create")
    assert creating == {"CreateTable", "TagResource", "UpdateContinuousBackups"}
    # The tags of CreateTable need TagResource.
    assert called | {"TagResource"} == allowed("dynamodb", "leases-dynamodb") | creating


def test_actions_are_allowed_on_their_own_resources_and_never_on_all():
    files = sorted(IAM.rglob("*.json"))
    assert len(files) >= 12
    for file in files:
        for one in json.loads(file.read_text())["Statement"]:
            resources = one.get("Resource", "no resource")
            if file.name == "cloudwatch.json":  # PutMetricData has no resources: the namespace limits it
                assert (one["Action"], resources) == (["cloudwatch:PutMetricData"], "*")
                assert one["Condition"] == {"StringEquals": {"cloudwatch:namespace": "efo"}}
                continue
            if file.name == "doctor.json" and one["Sid"] == "Account":
                assert ({*one["Action"]}, resources) == ({f"kinesis:{action}" for action in OF_ACCOUNT}, "*")
                continue
            assert "*" not in (resources, *one["Action"]), file
            for service, action in (action.split(":") for action in one["Action"]):
                if service == "kinesis":
                    assert ("/consumer/" in resources) == (action in OF_CONSUMER), (file, action)
                elif service == "dynamodb":
                    table = "billing" if file.name == "migrate.json" else "efo"  # that of the other library
                    assert resources.endswith(f":table/{table}"), file


def test_the_other_accounts_policies_allow_the_same_as_run():
    cross = statements("cross-account/stream-policy", "cross-account/consumer-policy")
    assert {action for one in cross for action in one["Action"]} == {
        f"kinesis:{action}" for action in allowed("kinesis", "run")
    }
    assert all(one["Principal"] == {"AWS": "arn:aws:iam::123456789012:role/efo"} for one in cross)


@pytest.mark.parametrize("name", ["decrypt", "encrypt"])
def test_the_key_is_allowed_only_for_the_stream(name):
    (one,) = statements(name)
    condition = one["Condition"]["StringEquals"]
    assert condition["kms:ViaService"].startswith("kinesis.")
    assert condition["kms:EncryptionContext:aws:kinesis:arn"] == statements("run")[0]["Resource"]


def test_the_role_of_a_pod_is_of_the_account_of_the_policies():
    account = (ROOT / "config/kubernetes/base/serviceaccount.yaml").read_text()
    assert statements("cross-account/trust-policy")[0]["Principal"]["AWS"] in account


def test_the_page_names_every_policy():
    page = (ROOT / "docs/deployment.md").read_text()
    assert [path.name for path in IAM.rglob("*.json") if f"`{path.relative_to(IAM)}`" not in page] == []
