"""`efo migrate` as an operator uses it, with checkpoints in Redis and in KCL's table, SQLite and FakeKinesis."""

import json

import pytest
import redis
import trio

from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, Lease
from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.testing import FakeKinesisThread
from efo_service.cli import call
from efo_service.exit_codes import Exit
from efo_service.operations.migration.stores.rows import look_twice
from proofs.local_servers.dynamodb import credentials, serve_dynamodb_local
from proofs.local_servers.redis import PASSWORD, serve_redis
from tests.environment import use_fake

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


def put(kinesis, hash_key, data=b"x"):
    """Put a record, and return its sequence number."""
    return kinesis.call(lambda fake: fake.put("orders", "k", data, hash_key))[1]


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread() as fake:
        fake.create_stream("orders", shards=2)
        yield fake


@pytest.fixture(scope="module")
def numbers(kinesis):
    """Return the sequence number of a record of each shard."""
    keys = {FIRST: "0", SECOND: str(2**128 - 1)}
    return {shard: put(kinesis, key) for shard, key in keys.items()}


@pytest.fixture(autouse=True)
def environment(kinesis, tmp_path, monkeypatch):
    use_fake(
        monkeypatch,
        kinesis,
        KINESIS__STREAM="orders",
        CONSUMER__APPLICATION="billing",
        LEASES__PATH=tmp_path / "leases.sqlite",
        LEASES__FAILOVER_SECONDS=0.1,
    )


@pytest.fixture
def checkpoints(servers, numbers):
    """Return a client of Redis that has the checkpoints of harlow/kinesis-consumer, and its URL."""
    url = servers.url(serve_redis)
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.flushdb()
        for shard, number in numbers.items():
            client.set(f"billing:checkpoint:orders:{shard}", number)
        yield client, url


@pytest.fixture
def leases(tmp_path):
    """Return a function that reads efo's leases, or creates some first; None if there is no file."""

    def run(*new):
        path = tmp_path / "leases.sqlite"

        async def work():
            async with SqliteLeaseStore(path, "billing", "orders") as store:
                for lease in new:
                    await store.create(lease)
                return {lease.key: lease for lease in await store.list()}

        return trio.run(work) if new or path.exists() else None

    return run


@pytest.fixture
def migrate(capsys, checkpoints):
    """Return a function that migrates from Redis, and returns the exit code, the JSON lines of stdout, and stderr."""

    def run(*arguments, library="harlow", source=checkpoints[1]):
        code = call(["migrate", library, source, "--look", "0", "--json", *arguments])
        output = capsys.readouterr()
        return code, [json.loads(line) for line in output.out.splitlines()], output.err

    return run


def test_a_dry_run_reports_each_shard_and_creates_nothing(migrate, leases, numbers):
    code, [report], _ = migrate()
    assert code == Exit.OK
    assert report["refused"] == []
    assert report["shards"] == [
        {"shard": shard, "outcome": "moved", "from": number, "to": number, "why": ""}
        for shard, number in numbers.items()
    ]
    assert leases() is None


def test_the_report_is_a_table_for_people(checkpoints, capsys, monkeypatch, numbers):
    monkeypatch.setenv("EFO_MIGRATE_CHECKPOINTS", checkpoints[1])
    assert call(["migrate", "harlow", "--look", "0"]) == Exit.OK
    output = capsys.readouterr()
    assert numbers[FIRST] in output.out
    assert "this was a dry run" in output.err
    assert "has no heartbeat" in output.err
    assert PASSWORD not in output.out + output.err


def test_write_creates_leases_after_the_checkpoints_and_a_second_time_changes_nothing(migrate, leases, numbers):
    code, [_, done], stderr = migrate("--write", "--yes")
    assert (code, done) == (Exit.OK, {"written": "2 leases created, 0 changed, 0 unchanged"}), stderr
    written = leases()
    assert {key: str(lease.checkpoint) for key, lease in written.items()} == numbers
    assert all(lease.owner is None and lease.hash_key_range for lease in written.values())
    assert migrate("--write", "--yes")[1][1] == {"written": "0 leases created, 0 changed, 2 unchanged"}


def test_without_a_confirmation_nothing_is_written(migrate, leases):
    code, _, stderr = migrate("--write")
    assert (code, leases()) == (Exit.USAGE, {})
    assert "--yes" in stderr


def test_leases_that_differ_are_refused_unless_reported(migrate, leases, numbers):
    leases(Lease(FIRST, Checkpoint("5")))
    code, [report], stderr = migrate("--write", "--yes")
    assert code == Exit.USAGE
    assert "--overwrite changes those that differ" in stderr
    assert report["refused"] == [line for line in report["refused"] if "lease store has 1 leases" in line]
    assert str(leases()[FIRST].checkpoint) == "5"
    assert migrate("--write", "--yes", "--overwrite")[0] == Exit.OK
    assert str(leases()[FIRST].checkpoint) == numbers[FIRST]


def test_a_row_that_cannot_be_read_is_refused_by_name(migrate, leases, checkpoints):
    checkpoints[0].set(f"billing:checkpoint:orders:{SECOND}", "yesterday")
    code, _, stderr = migrate("--write", "--yes")
    assert (code, leases()) == (Exit.USAGE, None)
    assert f"billing:checkpoint:orders:{SECOND}: the row cannot be read" in stderr


def test_a_running_application_is_refused(migrate, leases, checkpoints, monkeypatch):
    client, _ = checkpoints

    async def while_it_checkpoints(store, layout, scope, seconds, show):
        def write(_seconds):
            client.set(f"billing:checkpoint:orders:{FIRST}", "6" * 20)

        return await look_twice(store, layout, scope, seconds, write)

    monkeypatch.setattr("efo_service.commands.migrate.look_twice", while_it_checkpoints)
    code, _, stderr = migrate("--write", "--yes")
    assert (code, leases()) == (Exit.USAGE, None)
    assert "the application runs: 1 rows changed within 0 s" in stderr


def test_a_checkpoint_that_moves_after_the_report_is_refused(migrate, leases, checkpoints, monkeypatch):
    client, _ = checkpoints

    async def confirmed_late(_action, **_options):
        client.set(f"billing:checkpoint:orders:{FIRST}", "6" * 20)

    monkeypatch.setattr("efo_service.commands.migrate.confirm", confirmed_late)
    code, _, stderr = migrate("--write")
    assert (code, leases()) == (Exit.USAGE, {})
    assert "changed since the report" in stderr


def test_efos_progress_goes_back_to_the_library(migrate, leases, checkpoints, kinesis, numbers):
    client, _ = checkpoints
    client.delete(f"billing:checkpoint:orders:{SECOND}")
    later = put(kinesis, "0")
    leases(Lease(FIRST, Checkpoint(later)), Lease(SECOND, Checkpoint.TRIM_HORIZON))
    code, [report], stderr = migrate("--back", "--write", "--yes")
    assert code == Exit.USAGE
    assert "no checkpoint like TRIM_HORIZON" in stderr
    assert client.get(f"billing:checkpoint:orders:{FIRST}") == numbers[FIRST]
    assert [line["outcome"] for line in report["shards"]] == ["moved", "refused"]
    code, [_, done], _ = migrate("--back", "--write", "--yes", "--partial")
    assert (code, done) == (Exit.OK, {"written": "1 rows written"})
    assert client.get(f"billing:checkpoint:orders:{FIRST}") == later
    assert client.get(f"billing:checkpoint:orders:{SECOND}") is None


@pytest.mark.parametrize("sub", [0, 1])
def test_the_rest_of_an_aggregate_is_not_lost_on_the_way_back(migrate, leases, checkpoints, kinesis, sub):
    """These libraries continue after a whole record: efo's position within an aggregate is before it for them."""
    before = put(kinesis, "0")
    number = put(kinesis, "0", aggregate([AggregateEntry("k", b"%d" % n, "0") for n in range(3)]))
    leases(Lease(FIRST, Checkpoint(number, sub)))
    code, [report, _], stderr = migrate("--back", "--write", "--yes")
    assert code == Exit.OK, stderr
    assert checkpoints[0].get(f"billing:checkpoint:orders:{FIRST}") == before
    assert f"before the aggregate {number}" in report["shards"][0]["why"]


def test_an_aggregate_that_is_read_to_its_end_is_not_read_again(migrate, leases, checkpoints, kinesis):
    number = put(kinesis, "0", aggregate([AggregateEntry("k", b"%d" % n, "0") for n in range(3)]))
    leases(Lease(FIRST, Checkpoint(number, 2)))
    assert migrate("--back", "--write", "--yes")[0] == Exit.OK
    assert checkpoints[0].get(f"billing:checkpoint:orders:{FIRST}") == number


def test_a_living_worker_of_efo_forbids_the_way_back(migrate, leases, tmp_path, numbers, monkeypatch):
    leases(Lease(FIRST, Checkpoint(numbers[FIRST]), owner="efo-1", counter=1))

    async def one_is_alive(_store, _leases, _failover, _show):
        return {FIRST: "efo-1"}

    monkeypatch.setattr("efo_service.commands.common.living_holders", one_is_alive)
    code, _, stderr = migrate("--back", "--write", "--yes")
    assert code == Exit.USAGE
    assert "held by living workers" in stderr


def test_a_table_of_kcl_is_migrated_to_sqlite_and_back(servers, migrate, leases, numbers):
    url = servers.url(serve_dynamodb_local)
    source = f"dynamodb:migrated-billing?region=us-east-1&endpoint_url={url}"

    async def kcl(*new):
        with credentials():
            async with DynamoDbLeaseStore(
                "migrated-billing", region="us-east-1", endpoint_url=url, timeout=30
            ) as store:
                for lease in new:
                    await store.create(lease)
                return {lease.key: lease for lease in await store.list()}

    checkpoint = Checkpoint(numbers[FIRST], 2)
    trio.run(kcl, Lease(FIRST, checkpoint, owner="dead-worker", counter=7), Lease(SECOND, Checkpoint.LATEST))
    code, [report, _], stderr = migrate("--write", "--yes", library="kcl", source=source)
    assert code == Exit.OK, stderr
    assert [line["why"] for line in report["shards"]] == ["", "from now on"]
    written = leases()
    assert (written[FIRST].checkpoint, written[FIRST].owner) == (checkpoint, None)
    assert written[SECOND].latest_at is not None
    assert migrate("--back", "--write", "--yes", library="kcl", source=source)[0] == Exit.OK
    back = trio.run(kcl)
    assert (back[FIRST].checkpoint, back[FIRST].owner, back[FIRST].counter) == (checkpoint, None, 8)
    assert back[SECOND].latest_at == written[SECOND].latest_at


def test_a_table_of_many_streams_gets_rows_of_another_stream_by_its_id_alone(servers, migrate, leases, numbers):
    url = servers.url(serve_dynamodb_local)
    source = f"dynamodb:many-streams?region=us-east-1&endpoint_url={url}"

    async def rows(stream_id, *new):
        with credentials():
            async with DynamoDbLeaseStore(
                "many-streams", region="us-east-1", endpoint_url=url, timeout=30, stream_id=stream_id
            ) as store:
                for lease in new:
                    await store.create(lease)
                return [lease.key for lease in await store.list()]

    trio.run(rows, "123456789012:clicks:1", Lease(FIRST, Checkpoint.TRIM_HORIZON))
    leases(Lease(SECOND, Checkpoint(numbers[SECOND])))
    back = ("--back", "--write", "--yes")
    code, _, stderr = migrate(*back, library="kcl", source=source)
    assert code == Exit.USAGE
    assert "none of orders: name it with --stream-id" in " ".join(stderr.split())
    orders = "123456789012:orders:1767225600"
    assert trio.run(rows, orders) == []
    assert migrate(*back, "--stream-id", orders, library="kcl", source=source)[0] == Exit.OK
    assert trio.run(rows, orders) == [SECOND]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("kcl", "redis://127.0.0.1:1/0"), Exit.USAGE, "KCL keeps no checkpoints there: expected dynamodb:TABLE"),
        (("harlow", "mongodb://x"), Exit.CONFIGURATION, "expected dynamodb:TABLE, redis://"),
        (("harlow", "redis://127.0.0.1:1/0", "--partial"), Exit.USAGE, "--partial belongs to --back"),
        (("kcl", "dynamodb:x", "--stream-id", "1:orders:2"), Exit.USAGE, "expected account:stream:epoch, such as 123"),
        (("kcl", "dynamodb:x", "--stream-id", "123456789012:clicks:2"), Exit.USAGE, "such as 123456789012:orders:"),
        (("harlow", "redis://127.0.0.1:1/0", "--stream-id", "123456789012:orders:2"), Exit.USAGE, "belongs to KCL and"),
    ],
)
def test_a_call_that_cannot_work_is_one_error(arguments, code, message, capsys):
    assert call(["migrate", *arguments]) == code
    assert message in capsys.readouterr().err


def test_efos_own_table_is_refused_as_a_source(monkeypatch, capsys):
    monkeypatch.setenv("EFO_LEASES__STORE", "dynamodb")
    assert call(["migrate", "kcl", "dynamodb:billing"]) == Exit.USAGE
    assert "nothing has to be migrated" in capsys.readouterr().err
