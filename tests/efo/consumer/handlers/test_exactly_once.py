"""`efo.ExactlyOnceHandler` into a database in SQLite, over FakeKinesis in virtual time (rule R12)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import ExitStack

import pytest
import trio

import efo
import efo.testing
from efo import FailurePolicy, events
from efo.errors import ConfigurationError, HandlerError, PositionRefusedError
from efo.model import Checkpoint
from tests.efo.consumer.handlers.test_handler import STREAM, open_environment


class Database:
    """An application's tables. `before_commit`, `after_commit`: called in a transaction, and after it."""

    def __init__(self):
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.executescript(
            "CREATE TABLE records (data TEXT);"
            "CREATE TABLE positions (shard TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID"
        )
        self.before_commit = self.after_commit = lambda _move: None
        self.moves = []

    def load_now(self, _stream, shard_id):
        row = self.connection.execute("SELECT position FROM positions WHERE shard = ?", (shard_id,)).fetchone()
        return None if row is None else row[0]

    def store_now(self, batch, move):
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            self.connection.executemany(
                "INSERT INTO records VALUES (?)", [(record.data.decode(),) for record in batch.records]
            )
            if move.before is None:
                sql = "INSERT INTO positions VALUES (:shard, :after) ON CONFLICT DO NOTHING"
            else:
                sql = "UPDATE positions SET position = :after WHERE shard = :shard AND position = :before"
            values = {"shard": move.shard_id, "after": move.after, "before": move.before}
            move.check(self.connection.execute(sql, values).rowcount)
            self.before_commit(move)
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")
        self.moves.append(move)
        self.after_commit(move)

    async def load(self, stream, shard_id):
        await trio.lowlevel.checkpoint()
        return self.load_now(stream, shard_id)

    async def store(self, batch, move):
        await trio.lowlevel.checkpoint()
        self.store_now(batch, move)

    @property
    def numbers(self):
        return [int(row[0]) for row in self.connection.execute("SELECT data FROM records ORDER BY rowid")]


@pytest.fixture
def new_database():
    with ExitStack() as stack:

        def opened():
            database = Database()
            stack.callback(database.connection.close)
            return database

        yield opened


def handler(database, env, **options):
    return efo.ExactlyOnceHandler(database.store, database.load, observer=env.observe, **options)


class OnceError(Exception):
    pass


def raising(times=1):
    """Return a function that raises so many times."""
    left = [times]

    def call(_move):
        if left[0]:
            left[0] -= 1
            raise OnceError("the connection broke")

    return call


async def test_records_and_position_are_one_transaction(autojump_clock, new_database):
    database = new_database()
    async with open_environment(event_records=2) as env:
        env.put(*range(5))
        async with env.consuming(handler(database, env)):
            await trio.sleep(20)
        records = next(iter(env.fake.records(STREAM).values()))
        assert database.numbers == list(range(5))
        assert [move.before for move in database.moves] == [None, *(move.after for move in database.moves[:-1])]
        assert database.load_now(STREAM, database.moves[0].shard_id) == records[-1].sequence_number


async def test_the_position_wins_over_the_checkpoint_at_the_start(autojump_clock, new_database):
    """As after a crash between the commit and the saving of the checkpoint, and after leases that were deleted."""
    database = new_database()
    async with open_environment() as env:
        env.put(*range(3))
        async with env.consuming(handler(database, env)):
            await trio.sleep(20)
        for lease in await env.store.list():
            await env.store.reset(lease, Checkpoint.TRIM_HORIZON)
        env.put(3)
        async with env.consuming(handler(database, env)):
            await trio.sleep(20)
        assert database.numbers == [0, 1, 2, 3]
        assert env.reported(events.ShardRepositioned)


@pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
async def test_a_failed_call_stores_nothing_twice_also_if_its_commit_has_succeeded(
    autojump_clock, moment, new_database
):
    database = new_database()
    setattr(database, moment, raising(2))
    async with open_environment(event_records=3) as env:
        env.put(*range(9))
        async with env.consuming(handler(database, env, on_error=FailurePolicy(attempts=5))):
            await trio.sleep(60)
    assert database.numbers == list(range(9))


async def test_the_halves_of_a_batch_that_was_stored_after_all_are_not_stored_again(autojump_clock, new_database):
    database = new_database()
    database.after_commit = raising(1)
    async with open_environment() as env:
        env.put(*range(6))
        async with env.consuming(handler(database, env, on_error=FailurePolicy(then="skip"))):
            await trio.sleep(60)
        assert env.reported(events.RecordSkipped) == []
    assert database.numbers == list(range(6))


async def test_a_poison_record_is_skipped_and_the_next_one_moves_the_position(autojump_clock, new_database):
    database = new_database()

    async def store(batch, move):
        if any(record.data == b"2" for record in batch):
            raise ValueError("poison")
        await database.store(batch, move)

    async with open_environment() as env:
        env.put(*range(5))
        reader = efo.ExactlyOnceHandler(
            efo.batched(store, records=5), database.load, on_error=FailurePolicy(then="skip"), observer=env.observe
        )
        async with env.consuming(reader):
            await trio.sleep(60)
        assert len(env.reported(events.RecordSkipped)) == 1
    assert database.numbers == [0, 1, 3, 4]


async def test_a_worker_that_lost_its_lease_stores_nothing_that_another_one_has_stored(autojump_clock, new_database):
    """Two consumers of different lease stores read the same shards: the worst that can happen."""
    database = new_database()
    async with open_environment(event_records=1) as env, open_environment() as other:
        env.put(*range(20))
        second = efo.open_consumer(env.fake.kinesis(STREAM), application="second", leases=other.store)
        async with env.consuming(handler(database, env)), second as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handler(database, env))
            await trio.sleep(60)
            consumer.drain()
    assert database.numbers == list(range(20))


async def test_a_position_that_is_always_refused_isolates_its_shard(autojump_clock, new_database):
    async def store(_batch, move):
        move.check(0)

    async with open_environment() as env:
        env.put(1)
        reader = efo.ExactlyOnceHandler(store, new_database().load)
        async with env.consuming(reader) as consumer:
            await trio.sleep(20)
            assert len(consumer.status().isolated) == 1


async def test_a_position_that_is_refused_once_is_loaded_again_and_nothing_is_isolated(autojump_clock, new_database):
    database, refused = new_database(), []

    async def store(batch, move):
        if not refused:
            refused.append(move)
            move.check(0)
        await database.store(batch, move)

    async with open_environment() as env:
        env.put(1)
        async with env.consuming(efo.ExactlyOnceHandler(store, database.load)) as consumer:
            await trio.sleep(20)
            assert (database.numbers, len(refused), consumer.status().isolated) == ([1], 1, ())


@pytest.mark.parametrize("then", ["stop", "isolate"])
async def test_a_database_that_is_down_at_the_start_is_left_to_the_policy(autojump_clock, then, new_database):
    database, calls = new_database(), []

    async def load(stream, shard_id):
        calls.append(trio.current_time())
        if len(calls) < 4:
            raise OnceError("down")
        return await database.load(stream, shard_id)

    async with open_environment() as env:
        env.put(1)
        policy = FailurePolicy(attempts=3, then=then, cooldown=5)
        reader = efo.ExactlyOnceHandler(database.store, load, on_error=policy)
        if then == "stop":
            with pytest.raises(OnceError):
                async with env.consuming(reader):
                    await trio.sleep(60)
        else:
            async with env.consuming(reader):
                await trio.sleep(120)
            assert database.numbers == [1]
        assert len(calls) >= 3


@pytest.mark.parametrize("found", [7, "x", "LATEST", "1/x", ""])
async def test_what_is_no_position_stops_everything(autojump_clock, found, new_database):
    async def load(_stream, _shard_id):
        return found

    async with open_environment() as env:
        env.put(1)
        with pytest.raises(HandlerError, match="load_position returned"):
            async with env.consuming(efo.ExactlyOnceHandler(new_database().store, load)):
                await trio.sleep(20)


def test_functions_that_do_not_fit_are_refused_at_the_call(new_database):
    database = new_database()

    async def store_only(batch):
        pass

    for make in (
        lambda: efo.ExactlyOnceHandler(store_only, database.load),
        lambda: efo.ExactlyOnceHandler(database.store, database.load_now),
        lambda: efo.aio.ExactlyOnceHandler(database.store_now, database.load),
        lambda: efo.sync.ExactlyOnceHandler(database.store, database.load_now),
        lambda: efo.sync.ExactlyOnceHandler(database.store_now, database.load),
    ):
        with pytest.raises(ConfigurationError):
            make()
    with pytest.raises(PositionRefusedError):
        efo.PositionMove("orders", "s", None, "1").check(0)


@pytest.mark.parametrize("surface", ["asyncio", "sync", "sync threads"])
def test_each_surface_stores_exactly_once(surface, new_database):
    database, stream = new_database(), efo.testing.InMemoryStream("orders", shards=2)
    for number in range(10):
        stream.put(str(number), str(number).encode())
    wait = lambda consumer: len(database.numbers) == 10 and consumer.drain()  # noqa: E731
    options = {"application": "billing", "leases": efo.leases.MemoryLeaseStore()}
    with efo.testing.virtual_time():
        if surface == "asyncio":

            async def main():
                async with efo.aio.open_consumer(stream.open(), **options) as consumer:
                    database.after_commit = lambda _move: wait(consumer)

                    async def store(batch, move):
                        database.store_now(batch, move)

                    async def load(stream, shard_id):
                        return database.load_now(stream, shard_id)

                    await consumer.run(efo.aio.ExactlyOnceHandler(store, load))

            asyncio.run(main())
        else:
            with efo.sync.open_consumer(stream.open(), **options) as consumer:
                database.after_commit = lambda _move: wait(consumer)
                threads = 1 if surface == "sync threads" else 0
                consumer.run(efo.sync.ExactlyOnceHandler(database.store_now, database.load_now, threads=threads))
    assert sorted(database.numbers) == list(range(10))
