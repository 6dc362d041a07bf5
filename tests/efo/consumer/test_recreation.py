"""A stream is not its name: a recreated stream is recognised, and nothing else is taken for one (rule R15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio

from efo import events
from efo.consumer.recreation import MAX_CONFIRMATIONS, RecreationCheck
from efo.errors import AccessDeniedError, EfoError, ServiceError, StreamRecreatedError, ThrottledError
from efo.kinesis.identity import StreamIdentity
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Checkpoint, HashKeyRange, Lease, Position, Shard, ShardRead, StreamDescription
from efo.settings import ConsumerSettings
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.control_plane import FakeControlPlane
from efo.testing.faults import Refuse, StaleListing
from efo.testing.faults.script import ALWAYS, When
from tests.workers import open_worker

STREAM = "orders"
MODES = pytest.mark.parametrize("read_mode", ["fanout", "polling", "auto"])
DENIED = Refuse("AccessDeniedException", message="no")


class World:
    """A stream of a fake, and an application that reads it, time after time, with the same leases."""

    def __init__(self, fake: FakeKinesis, read_mode: str, shards: int = 2) -> None:
        self.fake = fake
        self.store = MemoryLeaseStore()
        self.seen: list[events.Event] = []
        self.got: list[bytes] = []
        self.settings = ConsumerSettings(read_mode=read_mode, shard_sync_seconds=30.0)
        fake.create_stream(STREAM, shards)
        self.put(b"old")

    def put(self, text: bytes, count: int = 12) -> None:
        self.fake.put_many(STREAM, [(f"k{n}", text + b"%d" % n) for n in range(count)])

    def recreate(self, shards: int = 2) -> None:
        self.fake.delete_stream(STREAM)
        self.fake.create_stream(STREAM, shards)
        self.put(b"new")

    async def run(self, seconds: float = 60.0, during=None, **changes: object) -> None:
        async def read(shard):
            async for batch in shard:
                self.got += [record.data for record in batch.records]
                shard.ack(batch)

        settings = replace(self.settings, **changes)
        try:
            async with (
                open_worker(self.fake.kinesis(STREAM), self.store, settings, self.seen.append) as consumer,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(consumer.run, read)
                await trio.sleep(seconds / 2)
                if during is not None:
                    during()
                await trio.sleep(seconds / 2)
                consumer.drain()
        except* EfoError as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    def count(self, text: bytes) -> int:
        return len({data for data in self.got if data.startswith(text)})

    async def forget_times(self) -> None:
        """Let the leases be those of KCL, or of an earlier efo."""
        for lease in await self.store.list():
            await self.store.delete(lease.key)
            await self.store.create(replace(lease, stream_created_at=None, unread_since=None))


@pytest.fixture
async def fake(autojump_clock):
    async with FakeKinesis(settings=FakeSettings(stream_deleting=0.0)) as fake:
        yield fake


# --- recognised ------------------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("shards", [1, 2, 4])
async def test_a_stream_that_was_recreated_while_the_application_was_stopped(autojump_clock, fake, read_mode, shards):
    world = World(fake, read_mode)
    await world.run()
    assert world.count(b"old") == 12
    await trio.sleep(5)
    world.recreate(shards)
    with pytest.raises(StreamRecreatedError, match=r"'orders' was deleted and created again.*efo leases reset --all"):
        await world.run()
    assert world.count(b"new") == 0


@MODES
@pytest.mark.parametrize("shards", [1, 2, 4])
async def test_a_stream_that_is_recreated_while_it_is_read(autojump_clock, fake, read_mode, shards):
    world = World(fake, read_mode)
    with pytest.raises(StreamRecreatedError):
        await world.run(900, during=lambda: world.recreate(shards))


@MODES
@pytest.mark.parametrize("shards", [1, 2, 3])
async def test_the_leases_of_kcl_name_no_time_and_their_positions_tell_it(autojump_clock, fake, read_mode, shards):
    world = World(fake, read_mode)
    await world.run()
    await world.forget_times()
    await trio.sleep(120)
    world.recreate(shards)
    with pytest.raises(StreamRecreatedError):
        await world.run(900)


@MODES
async def test_a_split_stream_that_was_recreated_is_not_read_without_its_first_shard(autojump_clock, fake, read_mode):
    # The old leases say that shard 0 was read to its end.
    world = World(fake, read_mode, shards=1)
    await world.run(during=lambda: fake.split(STREAM, fake.open_shards(STREAM)[0]))
    await world.forget_times()
    await trio.sleep(120)
    world.recreate(1)
    with pytest.raises(StreamRecreatedError):
        await world.run(120)


@MODES
async def test_without_permission_to_describe_the_stream_the_shards_tell_it(autojump_clock, fake, read_mode):
    world = World(fake, read_mode)
    settings = {} if read_mode == "polling" else {"consumer_arn": fake.register(STREAM, "given").arn}
    await trio.sleep(5)
    fake.faults.add(DENIED, When(operation="DescribeStreamSummary", times=ALWAYS))
    await world.run(**settings)
    assert world.count(b"old") == 12
    assert {lease.stream_created_at for lease in await world.store.list()} == {None}
    await trio.sleep(120)
    world.recreate(2)
    settings = {} if read_mode == "polling" else {"consumer_arn": fake.register(STREAM, "given").arn}
    await trio.sleep(5)
    with pytest.raises(StreamRecreatedError):
        await world.run(900, **settings)


@MODES
async def test_after_the_leases_are_deleted_the_new_stream_is_read(autojump_clock, fake, read_mode):
    world = World(fake, read_mode)
    await world.run()
    world.recreate(3)
    with pytest.raises(StreamRecreatedError):
        await world.run()
    for lease in await world.store.list():
        await world.store.delete(lease.key)
    await world.run()
    assert world.count(b"new") == 12


async def test_a_lease_at_latest_of_the_former_stream_is_recognised(autojump_clock, fake):
    world = World(fake, "polling")
    await trio.sleep(10)
    await world.run(initial_position="LATEST")
    await world.forget_times()
    await trio.sleep(120)
    world.recreate()
    with pytest.raises(StreamRecreatedError, match="the lease of shardId-000000000000 was created at"):
        await world.run(initial_position="LATEST")


async def test_it_is_reported_in_one_sentence_with_both_times(autojump_clock, fake):
    world = World(fake, "polling")
    await world.run()
    world.recreate()
    with pytest.raises(StreamRecreatedError) as raised:
        await world.run()
    assert str(raised.value) == (
        "the stream 'orders' was deleted and created again, or is now that of another account or region: the leases are"
        " of the one that was created at 2026-01-01T00:00:00Z, and the present one was created at 2026-01-01T00:01:00Z;"
        " to read it from its beginning, stop all workers and run `efo leases reset --all --to trim_horizon`, or delete"
        " the leases"
    )
    assert raised.value.error_type == "stream_recreated"


# --- not taken for one -----------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("known", [True, False], ids=["of efo", "of KCL"])
async def test_the_same_stream_is_read_on(autojump_clock, fake, read_mode, known):
    world = World(fake, read_mode)
    await world.run(during=lambda: fake.split(STREAM, fake.open_shards(STREAM)[0]))
    for _ in range(2):
        if not known:
            await world.forget_times()
        await trio.sleep(3600)
        world.put(b"new")
        await world.run(during=lambda: fake.scale(STREAM, 2))
        assert world.count(b"new") == 12
    created_at = {lease.stream_created_at for lease in await world.store.list() if not lease.is_finished}
    assert created_at == {fake.settings.epoch}


@MODES
async def test_leases_without_a_time_get_it_from_the_worker_that_holds_them(autojump_clock, fake, read_mode):
    world = World(fake, read_mode)
    await world.run()
    await world.forget_times()
    await world.run(5)
    assert {lease.stream_created_at for lease in await world.store.list()} == {fake.settings.epoch}


@MODES
async def test_a_listing_that_is_late_after_a_reshard_is_not_a_new_stream(autojump_clock, fake, read_mode):
    # ListShards tells the parent as open that was read to its end, and the newest shards are missing.
    fake.faults.add(StaleListing(seconds=120.0), When(times=ALWAYS))
    world = World(fake, read_mode, shards=1)
    await world.run(60, during=lambda: fake.split(STREAM, fake.open_shards(STREAM)[0]))
    await world.forget_times()
    await world.run(60)
    world.put(b"new")
    await world.run(600)
    assert world.count(b"new") == 12


@MODES
async def test_shards_that_expired_are_not_a_new_stream(autojump_clock, fake, read_mode):
    world = World(fake, read_mode, shards=1)
    fake.split(STREAM, fake.open_shards(STREAM)[0])
    await world.run(10)
    await world.forget_times()
    await trio.sleep(3 * 86_400)  # the parent has expired
    world.put(b"new")
    await world.run()
    assert world.count(b"new") == 12


@MODES
async def test_a_server_whose_times_of_creation_change_is_read(autojump_clock, fake, read_mode, monkeypatch):
    world = World(fake, read_mode)
    describe = FakeControlPlane.describe_stream

    async def describe_now(control: FakeControlPlane) -> StreamDescription:
        return replace(await describe(control), created_at=fake.clock())

    monkeypatch.setattr(FakeControlPlane, "describe_stream", describe_now)
    for _ in range(3):
        await world.run()
    world.put(b"new")
    await world.run()
    assert world.count(b"new") == 12


@MODES
async def test_a_refused_listing_or_description_is_an_outage_after_the_start(autojump_clock, fake, read_mode):
    world = World(fake, read_mode)
    for operation in ("DescribeStreamSummary", "ListShards"):
        fake.faults.add(Refuse("InternalFailure", status=500), When(operation=operation, times=ALWAYS, start=20.0))
    await world.run(120, during=lambda: world.put(b"new"))
    assert world.count(b"new") == 12


# --- the check by itself ---------------------------------------------------------------------------------------

KEYS = HashKeyRange("0", str(2**128 - 1))


class Answers:
    """Answers the calls that confirm a suspicion. `error`: raised by them. `is_open`: of the shard."""

    def __init__(self, error: ServiceError | None = None, *, is_open: bool = True) -> None:
        self.error = error
        self.is_open = is_open
        self.asked: list[tuple[str, Position]] = []
        self.described: list[float] = []
        self.limits: list[int] = []
        self.created_at: float | None = None

    async def describe_stream(self) -> StreamDescription:
        await trio.lowlevel.checkpoint()
        self.described.append(trio.current_time())
        return StreamDescription("s", "arn", "ACTIVE", 24, created_at=self.created_at)

    async def get_shard_iterator(self, shard_id: str, position: Position) -> str:
        await trio.lowlevel.checkpoint()
        self.asked.append((shard_id, position))
        if self.error is not None:
            raise self.error
        return "iterator"

    async def get_records(self, iterator: str, limit: int) -> ShardRead:
        await trio.lowlevel.checkpoint()
        self.limits.append(limit)
        return ShardRead((), iterator if self.is_open else None, 0, ())


def check_of(control: Answers) -> RecreationCheck:
    return RecreationCheck("s", control, StreamIdentity(control, trio.current_time()), 300.0)


def shards(count: int = 1, first: int = 100) -> Sequence[Shard]:
    return [Shard(f"shardId-{n}", KEYS, str(first + n)) for n in range(count)]


REFUSED = ServiceError("InvalidArgumentException", "Invalid StartingSequenceNumber. It encodes shardId-1")
FINISHED = Lease("shardId-0", Checkpoint.SHARD_END, hash_key_range=KEYS)
BEFORE = Lease("shardId-0", Checkpoint("7"), hash_key_range=KEYS)


async def test_a_position_that_the_service_refuses_is_a_proof(autojump_clock):
    control = Answers(REFUSED)
    with pytest.raises(StreamRecreatedError, match="the checkpoint of shardId-0 did not come from this shard"):
        await check_of(control).check(shards(), [BEFORE])
    assert control.asked == [("shardId-0", Position.at("7"))]


async def test_a_position_that_the_service_takes_refutes_it_for_good(autojump_clock):
    control = Answers()
    check = check_of(control)
    for _ in range(5):
        await check.check(shards(), [BEFORE])
    assert len(control.asked) == 1


@pytest.mark.parametrize("error", [AccessDeniedError("AccessDeniedException", "no"), ThrottledError("L", "slow")])
async def test_a_position_that_cannot_be_asked_for_is_not_believed(autojump_clock, error):
    # Its reader meets the refusal itself, whatever this check may do.
    check = check_of(Answers(error))
    for _ in range(20):
        await check.check(shards(), [BEFORE])
        await trio.sleep(60)


async def test_an_open_shard_of_a_finished_lease_is_a_proof(autojump_clock):
    control = Answers()
    with pytest.raises(StreamRecreatedError, match="read to its end, and the shard is open"):
        await check_of(control).check(shards(), [FINISHED])
    assert (control.asked, control.limits) == ([("shardId-0", Position.latest())], [1])


async def test_a_shard_that_is_closed_but_listed_as_open_is_not(autojump_clock):
    control = Answers(is_open=False)
    check = check_of(control)
    for _ in range(20):
        await check.check(shards(), [FINISHED])
        await trio.sleep(60)
    assert len(control.asked) == 1


async def test_without_permission_to_ask_a_listing_is_believed_once_it_cannot_be_late(autojump_clock):
    check = check_of(Answers(AccessDeniedError("AccessDeniedException", "no")))
    for _ in range(6):
        await check.check(shards(), [FINISHED])
        await trio.sleep(60)
    with pytest.raises(StreamRecreatedError):
        await check.check(shards(), [FINISHED])


async def test_a_suspicion_that_ends_and_comes_back_begins_anew(autojump_clock):
    check = check_of(Answers(AccessDeniedError("AccessDeniedException", "no")))
    closed = [replace(shards()[0], ending_sequence_number="200")]
    for _ in range(5):
        await check.check(shards(), [FINISHED])
        await trio.sleep(200)
        await check.check(closed, [FINISHED])
        await trio.sleep(200)


async def test_a_check_asks_about_few_of_many_suspicions(autojump_clock):
    control = Answers(AccessDeniedError("AccessDeniedException", "no"))
    leases = [Lease(f"shardId-{n}", Checkpoint("7"), hash_key_range=KEYS) for n in range(1000)]
    await check_of(control).check(shards(1000), leases)
    assert len(control.asked) == MAX_CONFIRMATIONS


async def test_the_stream_is_described_at_the_start_and_when_a_listing_is_doubtful(autojump_clock):
    control = Answers()
    check = check_of(control)
    for _ in range(10):
        await check.check(shards(2), [])
        await trio.sleep(60)
    assert len(control.described) == 1
    await check.check(shards(1), [])  # the newest shard is missing
    assert len(control.described) == 2
    await check.check(shards(2), [])
    assert len(control.described) == 2


@pytest.mark.parametrize(("seconds", "described"), [(60.0, 1), (60.5, 2)])
async def test_the_description_of_the_opening_is_relied_on_for_a_minute(autojump_clock, seconds, described):
    control = Answers()
    identity = StreamIdentity(control, trio.current_time())
    await identity.look(trio.current_time())
    await trio.sleep(seconds)
    await RecreationCheck("s", control, identity, 300.0).check(shards(), [])
    assert len(control.described) == described


async def test_shards_that_begin_elsewhere_are_another_stream_without_any_time(autojump_clock):
    check = check_of(Answers())
    await check.check(shards(), [])
    with pytest.raises(StreamRecreatedError, match="begin at other sequence numbers than before"):
        await check.check(shards(first=900), [])


async def test_shards_that_begin_elsewhere_are_this_stream_if_its_time_says_so(autojump_clock):
    control = Answers()
    control.created_at = 1000.0
    check = check_of(control)
    await check.check(shards(), [])
    await check.check(shards(first=900), [])
