"""The DynamoDB lease store: retries of botocore, errors, the lease table, and rows of KCL."""

import json
import re
import ssl
import time
from contextlib import asynccontextmanager

import botocore.exceptions
import pytest
import trio

from efo.errors import (
    ConfigurationError,
    CredentialsError,
    LeaseLostError,
    LeaseStoreCorruptError,
    LeaseStoreUnavailableError,
)
from efo.leases.store import Inspection
from efo.leases.stores.dynamodb import store as dynamodb_store, table as dynamodb_table
from efo.leases.stores.dynamodb.client import ConditionFailedError, DynamoDbTable, TableNotFoundError
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore, NewTable
from efo.model import Checkpoint, Lease
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local, serve_ministack
from tests.efo.leases.stores.all_stores import CALL_TIMEOUT

HELD = Lease("s", Checkpoint.LATEST, owner="ann", counter=3)
ROW = {
    "leaseKey": {"S": "s"},
    "leaseOwner": {"S": "ann"},
    "leaseCounter": {"N": "3"},
    "ownerSwitchesSinceCheckpoint": {"N": "0"},
    "checkpoint": {"S": "LATEST"},
    "checkpointSubSequenceNumber": {"N": "0"},
}


class ScriptedClient:
    """Returns or raises the given responses of botocore, in order."""

    class meta:  # noqa: N801 - botocore's name
        region_name = "eu-west-1"

    def __init__(self, *responses):
        self.calls = []
        self._responses = list(responses)

    def __getattr__(self, operation):
        async def call(**arguments):
            await trio.lowlevel.checkpoint()
            self.calls.append((operation, arguments))
            response = self._responses.pop(0)
            if isinstance(response, Exception):
                raise response
            return response

        return call


def error_response(code, *, retries=0, item=None):
    response = {"Error": {"Code": code, "Message": "the message  of\nthe service"}}
    response["ResponseMetadata"] = {"HTTPStatusCode": 400, "RetryAttempts": retries}
    if item is not None:
        response["Item"] = item
    return botocore.exceptions.ClientError(response, "UpdateItem")


def condition_failed(*, retries=0, item=None):
    return error_response("ConditionalCheckFailedException", retries=retries, item=item)


def store_of(*responses):
    store = DynamoDbLeaseStore("leases")
    client = ScriptedClient(*responses)
    store._opened = DynamoDbTable("leases", client)
    return store, client


def row(**changed):
    return ROW | {name: value for name, value in changed.items() if value is not None}


# --- calls that botocore retries --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "after"),
    [
        (lambda store: store.renew(HELD), row(leaseCounter={"N": "4"})),
        (
            lambda store: store.checkpoint(HELD, Checkpoint("7")),
            row(leaseCounter={"N": "4"}, checkpoint={"S": "7"}),
        ),
        (lambda store: store.take(HELD, "bob"), row(leaseCounter={"N": "4"}, leaseOwner={"S": "bob"})),
        (
            lambda store: store.release(HELD),
            {name: value for name, value in row(leaseCounter={"N": "4"}).items() if name != "leaseOwner"},
        ),
        (lambda store: store.request_handoff(HELD, "bob"), row(leaseOwner={"S": "bob"}, checkpointOwner={"S": "ann"})),
    ],
    ids=["renew", "checkpoint", "take", "release", "request_handoff"],
)
async def test_a_retried_write_recognises_the_effect_of_its_first_try(write, after):
    store, client = store_of(condition_failed(retries=1, item=after))
    lease = await write(store)
    assert lease == store._codec.lease(after)
    assert len(client.calls) == 1

    store, _ = store_of(condition_failed(item=after))  # not retried: a write of another worker
    with pytest.raises(LeaseLostError):
        await write(store)


async def test_a_retried_renewal_succeeds_although_a_hand_off_was_requested_since():
    after = row(leaseCounter={"N": "4"}, leaseOwner={"S": "bob"}, checkpointOwner={"S": "ann"})
    store, _ = store_of(condition_failed(retries=1, item=after))
    assert (await store.renew(HELD)).holder == "ann"


async def test_a_retried_renewal_fails_after_another_worker_took_the_lease():
    store, _ = store_of(condition_failed(retries=1, item=row(leaseCounter={"N": "4"}, leaseOwner={"S": "bob"})))
    with pytest.raises(LeaseLostError):
        await store.renew(HELD)


async def test_a_retried_create_recognises_the_effect_of_its_first_try():
    lease = Lease("s", Checkpoint.LATEST)
    item = {name: value for name, value in row(leaseCounter={"N": "0"}).items() if name != "leaseOwner"}
    assert await store_of(condition_failed(retries=1, item=item))[0].create(lease)
    assert not await store_of(condition_failed(item=item))[0].create(lease)
    assert not await store_of(condition_failed(retries=1, item=ROW))[0].create(lease)


async def test_a_row_that_is_missing_in_the_failure_is_read():
    requested = row(leaseOwner={"S": "bob"}, checkpointOwner={"S": "ann"})
    renewed = requested | {"leaseCounter": {"N": "4"}}
    store, client = store_of(condition_failed(), {"Item": requested}, {"Attributes": renewed})
    lease = await store.renew(HELD)
    assert (lease.counter, lease.holder, lease.owner) == (4, "ann", "bob")
    assert [operation for operation, _ in client.calls] == ["update_item", "get_item", "update_item"]
    assert client.calls[1][1]["ConsistentRead"] is True


async def test_a_write_fails_after_five_changes_of_the_row():
    requested = (row(leaseOwner={"S": f"w{number}"}, checkpointOwner={"S": "ann"}) for number in range(5))
    store, _ = store_of(*(condition_failed(item=item) for item in requested))
    with pytest.raises(LeaseStoreUnavailableError, match="changed 5 times"):
        await store.renew(HELD)


async def test_botocore_reports_that_it_retried_a_call():
    """The store relies on it. Here the first try takes effect, but its response is an error, so botocore retries."""
    after = row(leaseCounter={"N": "4"})
    responses = [
        (200, {"Table": table_of(("leaseKey", "HASH", "S"))}),
        (500, {"__type": "InternalServerError"}),
        (400, {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "Item": after}),
    ]
    async with serve_responses(responses) as url:
        with credentials():
            async with DynamoDbLeaseStore("leases", endpoint_url=url, timeout=CALL_TIMEOUT) as store:
                assert (await store.renew(HELD)).counter == 4
    assert not responses


@asynccontextmanager
async def serve_responses(responses):
    """Serve the given responses in order, each on a new connection. Yields the URL."""

    async def serve(stream):
        received = b""
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some()
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])
        while len(body) < length:
            body += await stream.receive_some()
        status, content = responses.pop(0)
        text = json.dumps(content).encode()
        await stream.send_all(
            b"HTTP/1.1 %d X\r\nContent-Type: application/x-amz-json-1.0\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (status, len(text), text)
        )

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


# --- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (error_response("AccessDeniedException"), LeaseStoreUnavailableError, "credentials need dynamodb:"),
        (error_response("ProvisionedThroughputExceededException"), LeaseStoreUnavailableError, "more capacity"),
        (error_response("ThrottlingException"), LeaseStoreUnavailableError, "PAY_PER_REQUEST"),
        (error_response("ResourceNotFoundException"), TableNotFoundError, "the message of the service"),
        (error_response("ValidationException"), LeaseStoreCorruptError, "partition key leaseKey"),
        (error_response("InternalServerError"), LeaseStoreUnavailableError, "InternalServerError"),
        (
            botocore.exceptions.ConnectTimeoutError(endpoint_url="https://dynamodb"),
            LeaseStoreUnavailableError,
            "cannot be reached",
        ),
        (
            botocore.exceptions.SSLError(endpoint_url="https://dynamodb", error=ssl.SSLCertVerificationError()),
            ConfigurationError,
            "cannot be reached: its certificate is not trusted",
        ),
        (ConfigurationError("no usable AWS credentials"), ConfigurationError, "no usable AWS credentials"),
        (AttributeError("of a parser, with a body"), LeaseStoreUnavailableError, "cannot be reached: AttributeError;"),
        (botocore.exceptions.ParamValidationError(report="x"), ConfigurationError, "rejects the call"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_an_error_of_botocore_is_translated_with_the_table_and_advice(error, kind, message):
    store, _ = store_of(error)
    with pytest.raises(kind, match=message) as caught:
        await store.list()
    assert "lease table 'leases' in eu-west-1" in str(caught.value)


async def test_credentials_that_cannot_be_refreshed_make_the_store_unavailable():
    store, _ = store_of({"Items": []}, CredentialsError("the AWS credentials cannot be refreshed now: why"))
    await store.list()
    with pytest.raises(LeaseStoreUnavailableError, match="cannot be refreshed"):
        await store.list()


async def test_an_invalid_row_is_rejected_with_its_key():
    store, _ = store_of({"Items": [ROW, row(leaseKey={"S": "t"}, checkpoint={"S": "nowhere"})]})
    with pytest.raises(LeaseStoreCorruptError, match=r"lease table 'leases' in eu-west-1: the row 't' .* 'nowhere'"):
        await store.list()


async def test_list_reads_all_pages():
    first = {"Items": [ROW], "LastEvaluatedKey": {"leaseKey": {"S": "s"}}}
    store, client = store_of(first, {"Items": [row(leaseKey={"S": "t"})]})
    assert [lease.key for lease in await store.list()] == ["s", "t"]
    assert client.calls[1] == ("scan", {"TableName": "leases", "ConsistentRead": False, **start_after("s")})


def start_after(key):
    return {"ExclusiveStartKey": {"leaseKey": {"S": key}}}


async def test_a_store_that_is_not_open_is_unavailable():
    with pytest.raises(LeaseStoreUnavailableError, match="async with"):
        await DynamoDbLeaseStore("leases").list()


def test_a_stream_id_without_three_parts_is_rejected():
    with pytest.raises(ConfigurationError, match="account:stream:epoch"):
        DynamoDbLeaseStore("leases", stream_id="orders")


async def test_invalid_settings_are_named(monkeypatch, tmp_path):
    for ca_file in (str(tmp_path / "none.pem"), __file__):
        with pytest.raises(ConfigurationError, match=r"cannot use the CA file"):
            await DynamoDbLeaseStore("leases", ca_file=ca_file).__aenter__()
    monkeypatch.setenv("AWS_CA_BUNDLE", __file__)
    with pytest.raises(ConfigurationError, match=r"cannot use the CA file"):
        await DynamoDbLeaseStore("leases").__aenter__()
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigurationError, match="set region or AWS_REGION"):
        await DynamoDbLeaseStore("leases").__aenter__()
    with pytest.raises(ConfigurationError, match="botocore rejects the settings"):
        await DynamoDbLeaseStore("leases", profile="nobody").__aenter__()


async def test_a_port_without_a_server_is_unreachable(tmp_path):
    with credentials():
        store = DynamoDbLeaseStore("leases", endpoint_url="http://127.0.0.1:9", timeout=CALL_TIMEOUT)
        with pytest.raises(LeaseStoreUnavailableError, match="cannot be reached"):
            await store.__aenter__()


# --- the table -------------------------------------------------------------------------------------------------


async def test_the_store_waits_for_a_table_that_another_worker_creates(autojump_clock):
    described = {"Table": table_of(("leaseKey", "HASH", "S"), status="CREATING")}
    client = ScriptedClient(
        error_response("ResourceNotFoundException"),
        error_response("ResourceInUseException"),
        error_response("ResourceNotFoundException"),
        described,
        {"Table": table_of(("leaseKey", "HASH", "S"))},
    )
    await dynamodb_table.prepare(DynamoDbTable("leases", client), NewTable(point_in_time_recovery=True))
    assert [operation for operation, _ in client.calls] == [
        "describe_table",
        "create_table",
        *["describe_table"] * 3,  # no backup settings: the other worker sets them
    ]


async def test_a_table_that_is_not_ready_in_time_is_unavailable(autojump_clock):
    client = ScriptedClient(*[{"Table": table_of(("leaseKey", "HASH", "S"), status="CREATING")}] * 200)
    with pytest.raises(LeaseStoreUnavailableError, match="not ready after 120 s"):
        await dynamodb_table.prepare(DynamoDbTable("leases", client), NewTable())


async def test_a_missing_table_is_not_created_without_new_table():
    client = ScriptedClient(error_response("ResourceNotFoundException"))
    with pytest.raises(LeaseStoreUnavailableError, match="does not exist"):
        await dynamodb_table.prepare(DynamoDbTable("leases", client), None)


@pytest.mark.parametrize(
    "key",
    [
        [("ShardID", "HASH", "S")],
        [("leaseKey", "HASH", "N")],
        [("leaseKey", "HASH", "S"), ("shard", "RANGE", "S")],
    ],
    ids=["name", "type", "sort key"],
)
async def test_a_table_with_another_key_is_rejected(key):
    client = ScriptedClient({"Table": table_of(*key)})
    with pytest.raises(LeaseStoreCorruptError, match="is not a lease table: its key is "):
        await dynamodb_table.prepare(DynamoDbTable("leases", client), NewTable())


def table_of(*key, status="ACTIVE"):
    return {
        "TableStatus": status,
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind, _ in key],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": typed} for name, _, typed in key],
    }


async def test_a_table_is_created_with_the_given_options(autojump_clock):
    new = NewTable(tags={"team": "orders"}, deletion_protection=True, point_in_time_recovery=True)
    active = {"Table": table_of(("leaseKey", "HASH", "S"))}
    client = ScriptedClient(error_response("ResourceNotFoundException"), {}, active, {})
    await dynamodb_table.prepare(DynamoDbTable("leases", client), new)
    (_, created), _, (backups, arguments) = client.calls[1:]
    assert created["BillingMode"] == "PAY_PER_REQUEST"
    assert created["Tags"] == [{"Key": "team", "Value": "orders"}]
    assert created["DeletionProtectionEnabled"] is True
    assert (backups, arguments["PointInTimeRecoverySpecification"]) == (
        "update_continuous_backups",
        {"PointInTimeRecoveryEnabled": True},
    )


# --- real servers ----------------------------------------------------------------------------------------------


@pytest.fixture(params=[serve_dynamodb_local, serve_ministack], ids=["dynamodb-local", "ministack"])
def url(request, servers):
    return servers.url(request.param)


@asynccontextmanager
async def opened(url, tmp_path, **options):
    table = f"leases-{tmp_path.name[:200]}"
    with credentials():
        async with DynamoDbLeaseStore(table, endpoint_url=url, timeout=CALL_TIMEOUT, **options) as store:
            yield store


async def put(store, item):
    await store._table.call("put_item", Item=item)


async def item_of(store, key):
    return (await store._table.call("get_item", Key={"leaseKey": {"S": key}}, ConsistentRead=True))["Item"]


async def test_unknown_attributes_and_rows_of_kcl_are_kept(url, tmp_path):
    async with opened(url, tmp_path) as store:
        await put(store, row(unknownToEfo={"M": {"a": {"S": "b"}}}, ownerSwitchesSinceCheckpoint={"N": "2"}))
        await put(store, {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}, "rvn": {"S": "x"}})
        (lease,) = await store.list()
        assert lease == Lease("s", Checkpoint.LATEST, owner="ann", counter=3, owner_switches=2)
        lease = await store.take(lease, "bob")
        lease = await store.request_handoff(lease, "cid")
        lease = await store.checkpoint(await store.renew(lease, 1.5), Checkpoint("7", 1))
        lease = await store.save_children(lease, ("t", "u"))
        lease = await store.release(lease)
        assert await item_of(store, "s") == {
            "leaseKey": {"S": "s"},
            "leaseOwner": {"S": "cid"},
            "leaseCounter": {"N": "7"},
            "ownerSwitchesSinceCheckpoint": {"N": "1"},
            "checkpoint": {"S": "7"},
            "checkpointSubSequenceNumber": {"N": "1"},
            "childShardIds": {"SS": ["t", "u"]},
            "throughputKBps": {"N": "1.5"},
            "unknownToEfo": {"M": {"a": {"S": "b"}}},
        }
        assert (await item_of(store, "Leader"))["rvn"] == {"S": "x"}


async def test_an_owner_of_leases_reports_to_a_leader_of_kcl(url, tmp_path):
    """Since KCL 3.5 in the lease table, if workers of KCL do. A table that KCL never used has no such rows."""
    async with opened(url, tmp_path) as store:
        await put(store, row())
        (lease,) = await store.list()
        await store.take(lease, "bob")
        await put(
            store,
            {
                "leaseKey": {"S": "kcl-1"},
                "entityType": {"S": "WORKER_METRIC_STATS"},
                "lut": {"N": str(int(time.time()))},
            },
        )
        assert [lease.key for lease in await store.list()] == ["s"]
        assert (await item_of(store, "bob"))["sup"] == {"N": "1"}
        assert [lease.key for lease in await store.list()] == ["s"]
        assert (await item_of(store, "s"))["leaseOwner"] == {"S": "bob"}


async def test_streams_in_one_table_are_separate(url, tmp_path):
    orders, others = "123456789012:orders:1700000000", "123456789012:others:1700000001"
    async with opened(url, tmp_path, stream_id=orders) as one, opened(url, tmp_path, stream_id=others) as other:
        assert await one.create(Lease("s", Checkpoint.LATEST, parents=("p",)))
        assert await other.create(Lease("s", Checkpoint.TRIM_HORIZON))
        taken = await one.take(Lease("s", Checkpoint.LATEST, parents=("p",)), "ann")
        assert list(await one.list()) == [taken] == [await one.get("s")]
        assert list(await other.list()) == [Lease("s", Checkpoint.TRIM_HORIZON)]
        item = await item_of(one, f"{orders}:s")
        assert (item["streamName"], item["shardId"], item["parentShardId"]) == (
            {"S": orders},
            {"S": "s"},
            {"SS": ["p"]},
        )
        await other.delete("s")
        assert list(await one.list()) == [taken]


async def test_the_stores_of_streams_share_one_table_its_client_and_its_scans(url, tmp_path):
    orders, others = "123456789012:orders:1700000000", "123456789012:others:1700000001"
    async with opened(url, tmp_path) as table:
        scans = 0
        scan = table._scan

        async def count():
            nonlocal scans
            scans += 1
            return await scan()

        table._scan = count
        one, other = table.for_stream(orders), table.for_stream(others)
        assert one.is_open
        assert await one.create(Lease("s", Checkpoint.LATEST))
        assert await other.create(Lease("s", Checkpoint.TRIM_HORIZON))
        listed = {}

        async def list_of(store):
            listed[store] = list(await store.list())

        async with trio.open_nursery() as nursery:
            for store in (one, other):
                nursery.start_soon(list_of, store)
        assert listed == {one: [Lease("s", Checkpoint.LATEST)], other: [Lease("s", Checkpoint.TRIM_HORIZON)]}
        assert scans == 1
        assert (await item_of(table, f"{orders}:s"))["streamName"] == {"S": orders}
        with pytest.raises(ConfigurationError, match="multi-stream application"):
            await table.list()
    with pytest.raises(LeaseStoreUnavailableError, match="is not open"):
        table.for_stream(orders)


async def test_the_table_of_one_stream_is_refused_for_many(url, tmp_path):
    """Else its streams would be read from their beginning, in silence."""
    async with opened(url, tmp_path) as table:
        await table.create(Lease("s", Checkpoint.LATEST))
        with pytest.raises(ConfigurationError, match="an application of one stream, it has the lease 's'"):
            await table.for_stream("123456789012:orders:1700000000").list()


@pytest.mark.parametrize("stream_id", ["orders", "1:orders:x", "a:orders:1", "1:or/ders:1"])
def test_a_stream_id_that_kcl_would_not_write_is_refused(stream_id):
    with pytest.raises(ConfigurationError, match="expected account:stream:epoch"):
        DynamoDbLeaseStore("app", stream_id=stream_id)


async def test_a_table_with_provisioned_capacity_is_created(url, tmp_path):
    async with opened(url, tmp_path, new_table=NewTable(read_capacity=7, write_capacity=3)) as store:
        described = (await store._table.call("describe_table"))["Table"]
        assert described.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED") == "PROVISIONED"
        capacity = described["ProvisionedThroughput"]
        assert (capacity["ReadCapacityUnits"], capacity["WriteCapacityUnits"]) == (7, 3)


@pytest.mark.parametrize("capacity", [{"read_capacity": 5}, {"write_capacity": 5}])
def test_half_a_capacity_is_refused(capacity):
    with pytest.raises(ConfigurationError, match="set both for a table with provisioned capacity"):
        NewTable(**capacity)


def test_a_capacity_of_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="read_capacity=0: expected 1 or more capacity units"):
        NewTable(read_capacity=0, write_capacity=1)


async def test_a_table_is_created_and_reused(url, tmp_path):
    async with opened(url, tmp_path, new_table=NewTable(deletion_protection=True)) as store:
        described = (await store._table.call("describe_table"))["Table"]
        assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        assert described["DeletionProtectionEnabled"] is True
        await store.create(Lease("s", Checkpoint.SHARD_END))
    async with opened(url, tmp_path, new_table=None, consistent_reads=True) as store:
        assert list(await store.list()) == [Lease("s", Checkpoint.SHARD_END)]


async def test_a_table_is_created_with_tags_and_backups(servers, tmp_path):
    """With MiniStack only: DynamoDB Local has neither."""
    new = NewTable(tags={"team": "orders"}, point_in_time_recovery=True)
    async with opened(servers.url(serve_ministack), tmp_path, new_table=new) as store:
        table, client = store._table, store._table._client
        described = (await table.call("describe_table"))["Table"]
        tags = await client.list_tags_of_resource(ResourceArn=described["TableArn"])
        assert tags["Tags"] == [{"Key": "team", "Value": "orders"}]
        backups = (await table.call("describe_continuous_backups"))["ContinuousBackupsDescription"]
        assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"


async def test_a_table_that_is_deleted_while_the_store_is_open_is_named(url, tmp_path):
    async with opened(url, tmp_path) as store:
        await store._table.call("delete_table")
        with pytest.raises(LeaseStoreUnavailableError, match="ResourceNotFoundException"):
            await store.list()


async def test_a_failed_condition_returns_the_row(url, tmp_path):
    """Otherwise each lost race would cost one more read."""
    async with opened(url, tmp_path) as store:
        await store.create(HELD)
        with pytest.raises(ConditionFailedError) as caught:
            await store._update(
                Lease("s", Checkpoint.LATEST, counter=1), Lease("s", Checkpoint.LATEST, counter=2), ("leaseCounter",)
            )
        assert store._codec.lease(caught.value.item) == HELD


# --- inspection ---------------------------------------------------------------------------------------------------

KEY_SCHEMA = {
    "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
}


@pytest.fixture
def inspected(monkeypatch):
    """Return a function that inspects a table whose responses are scripted, and returns the result and the calls."""

    async def inspect(*responses, **options):
        client = ScriptedClient(*responses)

        @asynccontextmanager
        async def open_table(name, _location):
            yield DynamoDbTable(name, client)

        monkeypatch.setattr(dynamodb_store, "open_table", open_table)
        return await DynamoDbLeaseStore("leases", **options).inspect(), client.calls

    return inspect


def described(status="ACTIVE"):
    return {"Table": {"TableStatus": status, **KEY_SCHEMA}}


async def test_an_inspection_tries_each_write_with_a_condition_that_is_never_true(inspected):
    found, calls = await inspected(
        described(),
        {"Items": [ROW]},
        {},
        condition_failed(),
        error_response("AccessDeniedException"),
        condition_failed(),
    )
    assert found == Inspection(exists=True, denied=("UpdateItem",))
    assert [name for name, _ in calls] == [
        "describe_table", "scan", "get_item", "put_item", "update_item", "delete_item",
    ]  # fmt: skip
    conditions = {arguments["ConditionExpression"] for _, arguments in calls[3:]}
    assert conditions == {"attribute_exists(leaseKey) AND attribute_not_exists(leaseKey)"}


async def test_the_inspection_of_a_missing_table_creates_none(inspected):
    found, calls = await inspected(error_response("ResourceNotFoundException"))
    assert found == Inspection(exists=False, denied=None)
    assert [name for name, _ in calls] == ["describe_table"]
    with pytest.raises(LeaseStoreUnavailableError, match="does not exist"):
        await inspected(error_response("ResourceNotFoundException"), new_table=None)


@pytest.mark.parametrize("status", ["CREATING", "DELETING"])
async def test_an_inspection_does_not_wait_for_a_table_that_cannot_be_used(inspected, status):
    with pytest.raises(LeaseStoreUnavailableError, match=f"is {status}"):
        await inspected(described(status))


async def test_an_inspection_rejects_the_table_of_a_multi_stream_application(inspected):
    with pytest.raises(ConfigurationError, match="multi-stream"):
        await inspected(described(), {"Items": [row(streamName={"S": "1:s:1"})]})


async def test_an_inspection_of_a_real_table_leaves_it_as_it_is(servers):
    url = servers.url(serve_dynamodb_local)
    with credentials():
        async with DynamoDbLeaseStore("inspected", endpoint_url=url, timeout=CALL_TIMEOUT) as store:
            await store.create(HELD)
            found = await DynamoDbLeaseStore("inspected", endpoint_url=url, timeout=CALL_TIMEOUT).inspect()
            assert found == Inspection(exists=True)
            assert [lease.key for lease in await store.list()] == ["s"]
