"""The SQLite lease store: files that it rejects, and failures that it survives."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial

import pytest
import trio

from efo.errors import (
    LeaseLostError,
    LeaseStoreCorruptError,
    LeaseStoreLockedError,
    LeaseStoreUnavailableError,
)
from efo.leases.store import Inspection
from efo.leases.stores.sqlite import store as module
from efo.leases.stores.sqlite.schema import APPLICATION_ID, VERSION
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.leases.writes import RenewLease
from efo.model import Checkpoint, HashKeyRange, Lease
from tests.efo.leases.stores.all_stores import check_leases_are_separate, check_leases_persist


@pytest.fixture
def path(tmp_path):
    return tmp_path / "leases.db"


def open_store(path, application="app", stream="stream"):
    return SqliteLeaseStore(path, application, stream)


async def error_of_opening(path, kind):
    with pytest.raises(kind) as caught:
        async with open_store(path):
            pytest.fail("the store opened")
    assert str(path) in str(caught.value)
    return str(caught.value)


def execute(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for statement in statements:
            result = connection.execute(statement).fetchall()
    finally:
        connection.close()
    return result


async def test_leases_persist_after_close(path):
    await check_leases_persist(partial(open_store, path))


async def test_applications_and_streams_in_one_file_are_separate(path):
    await check_leases_are_separate(partial(open_store, path))


async def test_an_empty_file_is_initialized(path):
    path.touch()
    async with open_store(path) as store:
        assert await store.list() == []


async def test_the_file_has_its_application_id_and_uses_durable_commits(path):
    async with open_store(path) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert execute(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert execute(path, "PRAGMA user_version") == [(VERSION,)]
    assert execute(path, "PRAGMA journal_mode") == [("wal",)]


async def test_a_database_of_another_program_is_rejected_and_not_changed(path):
    execute(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    assert "another program" in await error_of_opening(path, LeaseStoreCorruptError)
    assert path.read_bytes() == before


async def test_a_newer_version_is_rejected(path):
    async with open_store(path):
        pass
    execute(path, f"PRAGMA user_version = {VERSION + 1}")
    assert f"version is {VERSION + 1}" in await error_of_opening(path, LeaseStoreCorruptError)


FIRST_VERSION = """
    CREATE TABLE lease (
        application TEXT NOT NULL, stream TEXT NOT NULL, lease_key TEXT NOT NULL, lease_owner TEXT,
        lease_counter INTEGER NOT NULL, owner_switches_since_checkpoint INTEGER NOT NULL, checkpoint TEXT NOT NULL,
        checkpoint_sub_sequence_number INTEGER NOT NULL, parent_shard_ids TEXT NOT NULL, child_shard_ids TEXT NOT NULL,
        starting_hash_key TEXT, ending_hash_key TEXT, latest_at REAL, PRIMARY KEY (application, stream, lease_key)
    ) WITHOUT ROWID
"""


def make_first_version(path):
    execute(
        path,
        FIRST_VERSION,
        "INSERT INTO lease VALUES ('app', 'stream', 's', 'ann', 4, 1, '77', 2, '[\"p\"]', '[]', '0', '9', 1.5)",
        f"PRAGMA application_id = {APPLICATION_ID}",
        "PRAGMA user_version = 1",
    )


async def test_a_file_of_the_first_version_is_migrated(path):
    make_first_version(path)
    async with open_store(path) as store, open_store(path) as second:
        (lease,) = await store.list()
        assert lease == Lease("s", Checkpoint("77", 2), "ann", 4, 1, ("p",), (), HashKeyRange("0", "9"), latest_at=1.5)
        lease = await second.checkpoint(await second.request_handoff(lease, "bob"), Checkpoint("78"))
        assert await store.get("s") == lease
    assert execute(path, "PRAGMA user_version") == [(VERSION,)]


async def test_leases_of_an_earlier_version_get_their_times_from_who_holds_them(path):
    make_first_version(path)
    async with open_store(path) as store:
        (lease,) = await store.list()
        assert (lease.stream_created_at, lease.unread_since) == (None, None)
        lease = await store.renew(replace(lease, stream_created_at=1000.0, unread_since=2000.0))
        assert await store.list() == [lease]
        assert (lease.stream_created_at, lease.unread_since) == (1000.0, 2000.0)


async def test_a_failed_migration_does_not_change_the_file(path):
    make_first_version(path)
    execute(path, "ALTER TABLE lease ADD COLUMN unread_since REAL")  # so that the last statement fails
    await error_of_opening(path, LeaseStoreUnavailableError)
    assert execute(path, "PRAGMA user_version") == [(1,)]
    assert "checkpoint_owner" not in {name for _, name, *_ in execute(path, "PRAGMA table_info(lease)")}


async def test_a_text_file_is_rejected(path):
    path.write_text("not a database, " * 1000)
    assert "not a SQLite file" in await error_of_opening(path, LeaseStoreCorruptError)


async def test_a_damaged_page_is_found_when_the_store_opens(path):
    async with open_store(path) as store:
        for number in range(100):
            await store.create(Lease(f"shardId-{number:012}", Checkpoint.LATEST))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 4096)
        file.write(os.urandom(4096))
    assert "damaged" in await error_of_opening(path, LeaseStoreCorruptError)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE lease SET checkpoint = 'banana'",
        "UPDATE lease SET parent_shard_ids = '[\"a\"'",
        "UPDATE lease SET child_shard_ids = '7'",
    ],
)
async def test_an_invalid_row_is_rejected_with_its_key(path, damage):
    async with open_store(path) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        execute(path, damage)
        with pytest.raises(LeaseStoreCorruptError, match="stream 'stream', lease 's'") as caught:
            await store.list()
        assert str(path) in str(caught.value)


async def test_a_missing_directory_is_unavailable(tmp_path):
    assert "directory" in await error_of_opening(tmp_path / "nowhere" / "leases.db", LeaseStoreUnavailableError)


async def test_a_directory_instead_of_a_file_is_unavailable(tmp_path):
    await error_of_opening(tmp_path, LeaseStoreUnavailableError)


async def test_a_locked_file_is_unavailable_for_writes_until_it_is_unlocked(path, monkeypatch):
    monkeypatch.setattr(module, "BUSY_TIMEOUT", 0.0)
    async with open_store(path) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        locker = sqlite3.connect(path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        with pytest.raises(LeaseStoreLockedError, match=f"{path}: .*locked"):
            await store.take(Lease("s", Checkpoint.LATEST), "ann")
        assert await store.list() == [Lease("s", Checkpoint.LATEST)]  # reads are not blocked
        locker.close()
        assert (await store.take(Lease("s", Checkpoint.LATEST), "ann")).counter == 1


async def test_a_closed_store_is_unavailable(path):
    store = open_store(path)
    async with store:
        pass
    with pytest.raises(LeaseStoreUnavailableError, match="not open"):
        await store.list()


async def test_a_write_cancelled_in_its_transaction_completes_and_frees_the_connection(path):
    """The caller returns at once; the thread completes the transaction."""
    inside, resume = threading.Event(), threading.Event()

    async with open_store(path) as store:
        await store.create(Lease("s", Checkpoint.LATEST, owner="ann", counter=1))
        (lease,) = await store.list()

        def pause():
            inside.set()
            resume.wait()

        store._connection.create_function("pause", 0, pause)
        store._connection.execute("CREATE TEMP TRIGGER slow AFTER UPDATE ON main.lease BEGIN SELECT pause(); END")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.checkpoint, lease, Checkpoint("5"))
            await trio.to_thread.run_sync(inside.wait)
            nursery.cancel_scope.cancel()
        assert store._single_thread.borrowed_tokens == 1  # the caller has returned, the thread still runs
        resume.set()
        (after,) = await store.list()  # waits for its turn on the connection
        assert after == Lease("s", Checkpoint("5"), owner="ann", counter=2)
        assert not await store._run(lambda connection: connection.in_transaction)
        await store.renew(after)


WORKER = """
import sys, trio
from pathlib import Path
from efo.errors import LeaseLostError
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.leases.writes import RenewLease
from efo.model import Checkpoint, Lease

async def main(path, worker):
    print("ready", flush=True)
    sys.stdin.readline()
    async with SqliteLeaseStore(Path(path), "app", "stream") as store:
        for number in range(20):
            lease = Lease(f"s{number}", Checkpoint.LATEST)
            await store.create(lease)
            try:
                await store.take(lease, worker)
            except LeaseLostError:
                continue
            print(lease.key, flush=True)

trio.run(main, *sys.argv[1:])
"""


@pytest.mark.e2e
def test_each_lease_has_one_owner_after_processes_race_from_a_missing_file(path):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), f"w{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    taken = {number: worker.communicate()[0].split() for number, worker in enumerate(workers)}
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert sorted(key for keys in taken.values() for key in keys) == sorted(f"s{number}" for number in range(20))
    rows = execute(path, "SELECT lease_key, lease_owner, lease_counter FROM lease")
    assert set(rows) == {(key, f"w{number}", 1) for number, keys in taken.items() for key in keys}


# --- lease scans ---


@pytest.fixture
async def traced(path):
    """A store with ten leases, and the statements that it executes."""
    async with open_store(path) as store:
        for number in range(10):
            await store.create(Lease(f"s{number}", Checkpoint("5"), owner="ann"))
        statements = []
        store._connection.set_trace_callback(statements.append)
        yield store, statements


def scans(statements):
    return sum("SELECT lease_key" in text and "AND lease_key" not in text for text in statements)


async def test_a_lease_scan_reads_rows_only_after_another_process_has_changed_the_file(path, traced):
    store, statements = traced
    leases = {lease.key: lease for lease in await store.list()}
    assert scans(statements) == 1
    assert all(leases[lease.key] is lease for lease in await store.list())
    assert scans(statements) == 1
    async with open_store(path) as other:
        requested = await other.request_handoff(leases["s3"], "bob")
        await other.delete("s4")
        created = Lease("s99", Checkpoint.LATEST)
        await other.create(created)
    after = {lease.key: lease for lease in await store.list()}
    assert scans(statements) == 2
    assert after == {key: lease for key, lease in leases.items() if key != "s4"} | {"s3": requested, "s99": created}
    assert [key for key, lease in after.items() if leases.get(key) is not lease] == ["s3", "s99"]


async def test_a_lease_scan_shows_the_writes_of_its_own_store_without_reading(traced):
    store, statements = traced
    leases = await store.list()
    results = []
    await store.write_many([RenewLease(lease) for lease in leases[:8]], lambda _index, result: results.append(result))
    results.append(await store.checkpoint(leases[8], Checkpoint("7")))
    await store.delete(leases[9].key)
    assert sorted(await store.list(), key=repr) == sorted(results, key=repr)
    assert scans(statements) == 1


async def test_a_lease_scan_reads_again_after_a_write_that_failed(traced):
    store, statements = traced
    lease, *_ = await store.list()
    with pytest.raises(LeaseLostError):
        await store.renew(replace(lease, counter=7))
    assert lease in await store.list()
    assert scans(statements) == 2


async def test_a_store_that_is_opened_again_reads_the_file(path):
    store = open_store(path)
    async with store:
        await store.create(Lease("s", Checkpoint("5")))
        await store.list()
    async with open_store(path) as other:
        await other.delete("s")
    async with store:
        assert list(await store.list()) == []


async def test_a_damaged_row_in_a_batch_fails_alone(path):
    async with open_store(path) as store:
        for key in ("a", "b", "c"):
            await store.create(Lease(key, Checkpoint("5"), owner="ann"))
        leases = await store.list()
        execute(path, "UPDATE lease SET child_shard_ids = 'x' WHERE lease_key = 'b'")
        results = {}
        await store.write_many([RenewLease(lease) for lease in leases], results.__setitem__)
        errors = {leases[index].key: type(result) for index, result in results.items() if not isinstance(result, Lease)}
        assert errors == {"b": LeaseStoreCorruptError}
        assert (await store.get("a")).counter == (await store.get("c")).counter == 1


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("parent_shard_ids", "[" * 5000, "(maximum recursion depth|Expecting value)"),  # the latter from Python 3.14 on
        ("parent_shard_ids", "9" * 6000, "4300 digits"),
        ("child_shard_ids", "[1e400]", "Expected `str`"),
        ("checkpoint", "9" * 6000, "is not a checkpoint"),
        ("latest_at", 1e400, "inf is not a time in seconds"),
    ],
)
async def test_a_row_that_is_no_lease_is_rejected_with_its_key(path, column, value, message):
    async with open_store(path) as store:
        await store.create(Lease("shardId-000000000007", Checkpoint.LATEST))
        store._connection.execute(f"UPDATE lease SET {column} = ?", (value,))  # noqa: S608 - the names are above
        with pytest.raises(LeaseStoreCorruptError, match=f"lease 'shardId-000000000007': .*{message}"):
            await store.list()


@pytest.mark.parametrize("mode", [0o600, 0o640])
async def test_the_files_of_a_new_store_are_for_its_owner_unless_a_mode_is_given(path, mode):
    arguments = {} if mode == 0o600 else {"mode": mode}
    async with SqliteLeaseStore(path, "application", "stream", **arguments) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob(f"{path.name}*")} == {mode}


async def test_the_mode_of_an_existing_store_is_kept(path):
    async with open_store(path):
        pass
    path.chmod(0o664)
    async with open_store(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o664


# --- inspection ---------------------------------------------------------------------------------------------------


async def test_the_inspection_of_a_missing_file_creates_nothing(path):
    assert await open_store(path).inspect() == Inspection(exists=False)
    assert list(path.parent.iterdir()) == []


async def test_an_inspection_counts_the_leases_of_its_scope_and_leaves_no_files(path):
    async with open_store(path) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    async with open_store(path, stream="other") as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        await store.create(Lease("t", Checkpoint.LATEST))
    before = path.read_bytes()
    assert await open_store(path).inspect() == Inspection(exists=True, leases=1, version=VERSION)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == before


async def test_an_inspection_sees_what_a_worker_that_has_the_file_open_has_written(path):
    async with open_store(path) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        before = set(path.parent.iterdir())
        assert (await open_store(path).inspect()).leases == 1
        assert set(path.parent.iterdir()) == before
        await store.create(Lease("t", Checkpoint.LATEST))  # and does not lock it out


async def test_a_worker_that_opens_the_file_during_an_inspection_does_not_make_it_look_damaged(path, monkeypatch):
    async with open_store(path) as store:
        await store.create(Lease("s", Checkpoint.LATEST))
    inspected = []

    def inspect(connection, *rest):
        inspected.append(connection)
        if len(inspected) == 1:
            path.with_name(f"{path.name}-wal").touch()
            raise LeaseStoreCorruptError("half of it was written")
        return Inspection(exists=True)

    monkeypatch.setattr(module, "inspect", inspect)
    assert (await open_store(path).inspect()).exists
    assert len(inspected) == 2


async def test_an_inspection_rejects_the_file_of_another_program(path):
    execute(path, "CREATE TABLE t (x)")
    with pytest.raises(LeaseStoreCorruptError, match="belongs to another program"):
        await open_store(path).inspect()


async def test_an_inspection_tells_of_which_streams_the_leases_of_its_scope_are(path):
    async with open_store(path) as store:
        for key, created_at in (("s", 1000.0), ("t", 1000.0), ("u", None), ("v", 2000.0)):
            await store.create(Lease(key, Checkpoint.LATEST, stream_created_at=created_at))
    async with open_store(path, stream="other") as store:
        await store.create(Lease("s", Checkpoint.LATEST, stream_created_at=3000.0))
    assert sorted((await open_store(path).inspect()).created_at) == [1000.0, 2000.0]


async def test_an_inspection_does_not_migrate_the_file_of_an_older_efo(path):
    make_first_version(path)
    assert (await open_store(path).inspect()).version == 1
    assert execute(path, "PRAGMA user_version") == [(1,)]


async def test_a_file_that_may_not_be_written_is_read_and_reported(path, monkeypatch):
    async with open_store(path):
        pass
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert (await open_store(path).inspect()).denied == ("write",)
