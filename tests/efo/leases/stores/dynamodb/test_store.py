"""What the DynamoDB store does beyond the conformance suite: KCL's rows, its table, and what goes wrong."""

import json
import re
import ssl
from contextlib import asynccontextmanager

import botocore.exceptions
import pytest
import trio

from efo.errors import ConfigurationError, LeaseLostError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.leases.stores.dynamodb import table as dynamodb_table
from efo.leases.stores.dynamodb.client import ConditionFailedError, Table, TableNotFoundError
from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore, NewTable
from efo.model import LATEST, SHARD_END, TRIM_HORIZON, Checkpoint, Lease
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local, serve_ministack
from tests.efo.leases.stores.all_stores import PATIENCE

HELD = Lease("s", LATEST, owner="ann", counter=3)
ROW = {
    "leaseKey": {"S": "s"},
    "leaseOwner": {"S": "ann"},
    "leaseCounter": {"N": "3"},
    "ownerSwitchesSinceCheckpoint": {"N": "0"},
    "checkpoint": {"S": "LATEST"},
    "checkpointSubSequenceNumber": {"N": "0"},
}


class ScriptedClient:
    """Answers botocore's calls in turn: an error is raised, anything else returned."""

    class meta:  # noqa: N801 - botocore's name
        region_name = "eu-west-1"

    def __init__(self, *answers):
        self.calls = []
        self._answers = list(answers)

    def __getattr__(self, operation):
        async def call(**arguments):
            await trio.lowlevel.checkpoint()
            self.calls.append((operation, arguments))
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def refused(code, *, retries=0, item=None):
    response = {"Error": {"Code": code, "Message": "as the test  wants\nit"}}
    response["ResponseMetadata"] = {"HTTPStatusCode": 400, "RetryAttempts": retries}
    if item is not None:
        response["Item"] = item
    return botocore.exceptions.ClientError(response, "UpdateItem")


def failed(*, retries=0, item=None):
    return refused("ConditionalCheckFailedException", retries=retries, item=item)


def store_of(*answers):
    store = DynamoDbLeaseStore("leases")
    client = ScriptedClient(*answers)
    store._opened = Table("leases", client)
    return store, client


def row(**changed):
    return ROW | {name: value for name, value in changed.items() if value is not None}


# --- botocore repeats a call -----------------------------------------------------------------------------------


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
async def test_a_repeated_write_takes_the_work_of_its_first_try_for_its_own(write, after):
    store, client = store_of(failed(retries=1, item=after))
    lease = await write(store)
    assert lease == store._codec.lease(after)
    assert len(client.calls) == 1

    store, _ = store_of(failed(item=after))  # not repeated: the work of another
    with pytest.raises(LeaseLostError):
        await write(store)


async def test_a_repeated_renewal_is_ours_though_a_hand_off_was_asked_for_since():
    after = row(leaseCounter={"N": "4"}, leaseOwner={"S": "bob"}, checkpointOwner={"S": "ann"})
    store, _ = store_of(failed(retries=1, item=after))
    assert (await store.renew(HELD)).holder == "ann"


async def test_a_repeated_renewal_after_which_another_took_the_lease_is_lost():
    store, _ = store_of(failed(retries=1, item=row(leaseCounter={"N": "4"}, leaseOwner={"S": "bob"})))
    with pytest.raises(LeaseLostError):
        await store.renew(HELD)


async def test_a_repeated_creation_has_created():
    lease = Lease("s", LATEST)
    item = {name: value for name, value in row(leaseCounter={"N": "0"}).items() if name != "leaseOwner"}
    assert await store_of(failed(retries=1, item=item))[0].create(lease)
    assert not await store_of(failed(item=item))[0].create(lease)
    assert not await store_of(failed(retries=1, item=ROW))[0].create(lease)


async def test_a_service_that_does_not_tell_the_row_is_asked_for_it():
    asked = row(leaseOwner={"S": "bob"}, checkpointOwner={"S": "ann"})
    renewed = asked | {"leaseCounter": {"N": "4"}}
    store, client = store_of(failed(), {"Item": asked}, {"Attributes": renewed})
    lease = await store.renew(HELD)
    assert (lease.counter, lease.holder, lease.owner) == (4, "ann", "bob")
    assert [operation for operation, _ in client.calls] == ["update_item", "get_item", "update_item"]
    assert client.calls[1][1]["ConsistentRead"] is True


async def test_a_row_that_changes_for_ever_is_given_up():
    asked = (row(leaseOwner={"S": f"w{number}"}, checkpointOwner={"S": "ann"}) for number in range(5))
    store, _ = store_of(*(failed(item=item) for item in asked))
    with pytest.raises(LeaseStoreUnavailableError, match="changed 5 times"):
        await store.renew(HELD)


async def test_botocore_tells_that_it_repeated_a_call():
    """On which the store relies: here the first try is done and its answer is an error, so it is made again."""
    after = row(leaseCounter={"N": "4"})
    answers = [
        (200, {"Table": table_of(("leaseKey", "HASH", "S"))}),
        (500, {"__type": "InternalServerError"}),
        (400, {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "Item": after}),
    ]
    async with answering(answers) as url:
        with credentials():
            async with DynamoDbLeaseStore("leases", endpoint_url=url, timeout=PATIENCE) as store:
                assert (await store.renew(HELD)).counter == 4
    assert not answers


@asynccontextmanager
async def answering(answers):
    """A server that answers requests in turn, each on a connection of its own."""

    async def serve(stream):
        received = b""
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some()
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])
        while len(body) < length:
            body += await stream.receive_some()
        status, content = answers.pop(0)
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


# --- what goes wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (refused("AccessDeniedException"), LeaseStoreUnavailableError, "credentials need dynamodb:"),
        (refused("ProvisionedThroughputExceededException"), LeaseStoreUnavailableError, "more capacity"),
        (refused("ThrottlingException"), LeaseStoreUnavailableError, "PAY_PER_REQUEST"),
        (refused("ResourceNotFoundException"), TableNotFoundError, "as the test wants it"),
        (refused("ValidationException"), LeaseStoreCorruptError, "partition key leaseKey"),
        (refused("InternalServerError"), LeaseStoreUnavailableError, "InternalServerError"),
        (
            botocore.exceptions.ConnectTimeoutError(endpoint_url="https://dynamodb"),
            LeaseStoreUnavailableError,
            "cannot be reached",
        ),
        (
            botocore.exceptions.SSLError(endpoint_url="https://dynamodb", error=ssl.SSLCertVerificationError()),
            LeaseStoreUnavailableError,
            "cannot be reached",
        ),
        (botocore.exceptions.NoCredentialsError(), ConfigurationError, "no usable AWS credentials"),
        (botocore.exceptions.ParamValidationError(report="x"), ConfigurationError, "refuses the call"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_each_error_is_one_of_ours_and_says_where_and_what_to_do(error, kind, says):
    store, _ = store_of(error)
    with pytest.raises(kind, match=says) as caught:
        await store.list()
    assert "lease table 'leases' in eu-west-1" in str(caught.value)


async def test_credentials_that_were_there_and_cannot_be_had_now_may_come_back():
    store, _ = store_of({"Items": []}, botocore.exceptions.NoCredentialsError())
    await store.list()
    with pytest.raises(LeaseStoreUnavailableError, match="cannot be refreshed"):
        await store.list()


async def test_a_damaged_row_is_named_and_nothing_is_dropped_silently():
    store, _ = store_of({"Items": [ROW, row(leaseKey={"S": "t"}, checkpoint={"S": "nowhere"})]})
    with pytest.raises(LeaseStoreCorruptError, match=r"lease table 'leases' in eu-west-1: the row 't' .* 'nowhere'"):
        await store.list()


async def test_a_list_has_all_pages():
    first = {"Items": [ROW], "LastEvaluatedKey": {"leaseKey": {"S": "s"}}}
    store, client = store_of(first, {"Items": [row(leaseKey={"S": "t"})]})
    assert [lease.key for lease in await store.list()] == ["s", "t"]
    assert client.calls[1] == ("scan", {"TableName": "leases", "ConsistentRead": False, **start_after("s")})


def start_after(key):
    return {"ExclusiveStartKey": {"leaseKey": {"S": key}}}


async def test_a_store_that_is_not_open_says_so():
    with pytest.raises(LeaseStoreUnavailableError, match="async with"):
        await DynamoDbLeaseStore("leases").list()


def test_a_stream_id_is_three_parts():
    with pytest.raises(ConfigurationError, match="account:stream:epoch"):
        DynamoDbLeaseStore("leases", stream_id="orders")


async def test_wrong_settings_are_named(monkeypatch, tmp_path):
    for ca_file in (str(tmp_path / "none.pem"), __file__):
        with pytest.raises(ConfigurationError, match=r"CA file .* cannot be used"):
            await DynamoDbLeaseStore("leases", ca_file=ca_file).__aenter__()
    monkeypatch.setenv("AWS_CA_BUNDLE", __file__)
    with pytest.raises(ConfigurationError, match=r"CA file .* cannot be used"):
        await DynamoDbLeaseStore("leases").__aenter__()
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigurationError, match="set region or AWS_REGION"):
        await DynamoDbLeaseStore("leases").__aenter__()
    with pytest.raises(ConfigurationError, match="botocore refuses the settings"):
        await DynamoDbLeaseStore("leases", profile="nobody").__aenter__()


async def test_a_port_where_nobody_listens_is_unreachable(tmp_path):
    with credentials():
        store = DynamoDbLeaseStore("leases", endpoint_url="http://127.0.0.1:9", timeout=PATIENCE)
        with pytest.raises(LeaseStoreUnavailableError, match="cannot be reached"):
            await store.__aenter__()


# --- the table -------------------------------------------------------------------------------------------------


async def test_a_table_that_another_worker_makes_is_waited_for(autojump_clock):
    described = {"Table": table_of(("leaseKey", "HASH", "S"), status="CREATING")}
    client = ScriptedClient(
        refused("ResourceNotFoundException"),
        refused("ResourceInUseException"),
        refused("ResourceNotFoundException"),
        described,
        {"Table": table_of(("leaseKey", "HASH", "S"))},
    )
    await dynamodb_table.prepare(Table("leases", client), NewTable(point_in_time_recovery=True))
    assert [operation for operation, _ in client.calls] == [
        "describe_table",
        "create_table",
        *["describe_table"] * 3,  # and no word about backups: they are the other's to set
    ]


async def test_a_table_that_is_never_ready_is_given_up(autojump_clock):
    client = ScriptedClient(*[{"Table": table_of(("leaseKey", "HASH", "S"), status="CREATING")}] * 200)
    with pytest.raises(LeaseStoreUnavailableError, match="not ready after 120 s"):
        await dynamodb_table.prepare(Table("leases", client), NewTable())


async def test_a_table_is_made_only_if_asked_for():
    client = ScriptedClient(refused("ResourceNotFoundException"))
    with pytest.raises(LeaseStoreUnavailableError, match="no such table"):
        await dynamodb_table.prepare(Table("leases", client), None)


@pytest.mark.parametrize(
    "key",
    [
        [("ShardID", "HASH", "S")],
        [("leaseKey", "HASH", "N")],
        [("leaseKey", "HASH", "S"), ("shard", "RANGE", "S")],
    ],
    ids=["name", "type", "sort key"],
)
async def test_a_table_of_another_schema_is_refused(key):
    client = ScriptedClient({"Table": table_of(*key)})
    with pytest.raises(LeaseStoreCorruptError, match="no lease table: its key is "):
        await dynamodb_table.prepare(Table("leases", client), NewTable())


def table_of(*key, status="ACTIVE"):
    return {
        "TableStatus": status,
        "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind, _ in key],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": typed} for name, _, typed in key],
    }


async def test_a_table_is_made_as_asked_for(autojump_clock):
    new = NewTable(tags={"team": "orders"}, deletion_protection=True, point_in_time_recovery=True)
    active = {"Table": table_of(("leaseKey", "HASH", "S"))}
    client = ScriptedClient(refused("ResourceNotFoundException"), {}, active, {})
    await dynamodb_table.prepare(Table("leases", client), new)
    (_, created), _, (backups, asked) = client.calls[1:]
    assert created["BillingMode"] == "PAY_PER_REQUEST"
    assert created["Tags"] == [{"Key": "team", "Value": "orders"}]
    assert created["DeletionProtectionEnabled"] is True
    assert (backups, asked["PointInTimeRecoverySpecification"]) == (
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
        async with DynamoDbLeaseStore(table, endpoint_url=url, timeout=PATIENCE, **options) as store:
            yield store


async def put(store, item):
    await store.table.call("put_item", Item=item)


async def item_of(store, key):
    return (await store.table.call("get_item", Key={"leaseKey": {"S": key}}, ConsistentRead=True))["Item"]


async def test_rows_of_kcl_keep_what_we_do_not_know(url, tmp_path):
    async with opened(url, tmp_path) as store:
        await put(store, row(unknownToUs={"M": {"a": {"S": "b"}}}, ownerSwitchesSinceCheckpoint={"N": "2"}))
        await put(store, {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}, "rvn": {"S": "x"}})
        (lease,) = await store.list()
        assert lease == Lease("s", LATEST, owner="ann", counter=3, owner_switches=2)
        lease = await store.take(lease, "bob")
        lease = await store.request_handoff(lease, "cid")
        lease = await store.prepare_checkpoint(lease, Checkpoint("7", 1), b"x")
        lease = await store.checkpoint(await store.renew(lease, 1.5), Checkpoint("7", 1))
        lease = await store.save_children(lease, ("t", "u"))
        lease = await store.release(lease)
        assert await item_of(store, "s") == {
            "leaseKey": {"S": "s"},
            "leaseOwner": {"S": "cid"},
            "leaseCounter": {"N": "8"},
            "ownerSwitchesSinceCheckpoint": {"N": "1"},
            "checkpoint": {"S": "7"},
            "checkpointSubSequenceNumber": {"N": "1"},
            "childShardIds": {"SS": ["t", "u"]},
            "throughputKBps": {"N": "1.5"},
            "unknownToUs": {"M": {"a": {"S": "b"}}},
        }
        assert (await item_of(store, "Leader"))["rvn"] == {"S": "x"}


async def test_streams_of_one_table_do_not_see_each_other(url, tmp_path):
    orders, others = "123456789012:orders:1700000000", "123456789012:others:1700000001"
    async with opened(url, tmp_path, stream_id=orders) as one, opened(url, tmp_path, stream_id=others) as other:
        assert await one.create(Lease("s", LATEST, parents=("p",)))
        assert await other.create(Lease("s", TRIM_HORIZON))
        taken = await one.take(Lease("s", LATEST, parents=("p",)), "ann")
        assert list(await one.list()) == [taken] == [await one.get("s")]
        assert list(await other.list()) == [Lease("s", TRIM_HORIZON)]
        item = await item_of(one, f"{orders}:s")
        assert (item["streamName"], item["shardId"], item["parentShardId"]) == (
            {"S": orders},
            {"S": "s"},
            {"SS": ["p"]},
        )
        await other.delete("s")
        assert list(await one.list()) == [taken]


async def test_a_table_is_made_and_used_again(url, tmp_path):
    async with opened(url, tmp_path, new_table=NewTable(deletion_protection=True)) as store:
        described = (await store.table.call("describe_table"))["Table"]
        assert described["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        assert described["DeletionProtectionEnabled"] is True
        await store.create(Lease("s", SHARD_END))
    async with opened(url, tmp_path, new_table=None, consistent_reads=True) as store:
        assert list(await store.list()) == [Lease("s", SHARD_END)]


async def test_a_table_is_made_with_tags_and_backups(servers, tmp_path):
    """DynamoDB Local has neither."""
    new = NewTable(tags={"team": "orders"}, point_in_time_recovery=True)
    async with opened(servers.url(serve_ministack), tmp_path, new_table=new) as store:
        table, client = store.table, store.table._client
        described = (await table.call("describe_table"))["Table"]
        tags = await client.list_tags_of_resource(ResourceArn=described["TableArn"])
        assert tags["Tags"] == [{"Key": "team", "Value": "orders"}]
        backups = (await table.call("describe_continuous_backups"))["ContinuousBackupsDescription"]
        assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"


async def test_a_table_that_is_deleted_under_us_is_named(url, tmp_path):
    async with opened(url, tmp_path) as store:
        await store.table.call("delete_table")
        with pytest.raises(LeaseStoreUnavailableError, match="ResourceNotFoundException"):
            await store.list()


async def test_the_row_comes_with_the_failure(url, tmp_path):
    """Or each lost race would cost a read more."""
    async with opened(url, tmp_path) as store:
        await store.create(HELD)
        with pytest.raises(ConditionFailedError) as caught:
            await store._update(Lease("s", LATEST, counter=1), Lease("s", LATEST, counter=2), ("leaseCounter",))
        assert store._codec.lease(caught.value.item) == HELD
