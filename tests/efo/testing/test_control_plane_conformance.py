"""Tests for every ControlPlane: FakeControlPlane in memory, and both ways of AwsControlPlane, with
signatures, on a served fake.
"""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import aiobotocore.config
import aiobotocore.httpxsession
import aiobotocore.session
import pytest
from botocore.credentials import ReadOnlyCredentials

from efo import errors
from efo.aws.clock import ServiceClock
from efo.kinesis.aws.client import Signer
from efo.kinesis.aws.connector import Connector
from efo.kinesis.aws.control_plane import AwsControlPlane
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.service_call import ServiceCaller
from efo.model import AccountLimits, FanOutConsumer, Position
from efo.testing import Credential, FakeKinesis, FakeSettings, When
from efo.testing.faults.kinds import Refuse

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
KEY, SECRET = "AKIDCONFORMANCE", "conformance"
SETTINGS = FakeSettings(
    credentials={KEY: Credential(SECRET)}, consumers_per_stream=3, consumers_creating=2, retention_hours=48
)


class Clock:
    """A wall clock that the test moves. It starts at the current time, because signatures are checked."""

    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def fake(clock):
    async with FakeKinesis(settings=SETTINGS, clock=clock) as fake:
        fake.create_stream("s", 2)
        yield fake


class Aiobotocore:
    """Credentials, and calls without retries."""

    region = "us-east-1"

    def __init__(self, client):
        self._client = client

    async def get(self):
        return ReadOnlyCredentials(KEY, SECRET, None)

    async def call(self, operation, **arguments):
        return await getattr(self._client, operation)(**arguments)


class Unreachable:
    """Reads without aiobotocore, which always fail."""

    async def read(self, _operation, _arguments):
        raise errors.TransportError("no connection")


@pytest.fixture(params=["memory", "direct", "aiobotocore"])
async def control_of(request, fake, nursery):
    """Return a function that returns the control plane of a stream."""
    if request.param == "memory":
        yield lambda stream: fake.kinesis(stream).control_plane
        return
    config = aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession, retries={"total_max_attempts": 1}
    )
    async with (
        fake.serve() as address,
        aiobotocore.session.get_session().create_client(
            "kinesis",
            region_name="us-east-1",
            endpoint_url=address.url,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            verify=str(address.ca_file),
            config=config,
        ) as client,
    ):
        through, direct = Aiobotocore(client), Unreachable()
        if request.param == "direct":
            url = urlsplit(address.url)
            pool = ConnectionPool(Connector(url.hostname, url.port, ca_file=str(address.ca_file)).connect, address="")
            await nursery.start(pool.run)
            sign = Signer(through, ServiceClock(), address.url, "us-east-1").sign
            direct = ServiceCaller(pool, sign=sign, authority=url.netloc, scheme="https")
        yield lambda stream: AwsControlPlane(through, direct, stream, None)


@pytest.fixture
def control(control_of):
    return control_of("s")


@pytest.fixture
async def arn(control):
    return (await control.describe_stream()).arn


async def test_describe_stream_returns_name_arn_status_and_retention(control):
    described = await control.describe_stream()
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
    assert (described.name, described.arn, described.status, described.retention_hours) == ("s", arn, "ACTIVE", 48)


async def test_describe_stream_returns_the_mode_and_the_distribution_of_records(control_of, fake):
    described = await control_of("s").describe_stream()
    assert (described.mode, described.distribution, described.is_auto, described.queues) == (
        "PROVISIONED",
        "USER_PARTITION_KEY",
        False,
        0,
    )
    fake.create_stream("auto", distribution="AUTO")
    described = await control_of("auto").describe_stream()
    assert (described.mode, described.distribution, described.is_auto) == ("ON_DEMAND", "AUTO", True)


async def test_records_without_a_partition_key_are_read(control_of, fake):
    fake.create_stream("auto", distribution="AUTO")
    fake.put("auto", None, b"keyless")
    fake.put("auto", "k", b"keyed")
    control = control_of("auto")
    read = await control.get_records(await control.get_shard_iterator(FIRST, Position.trim_horizon()), 10)
    assert [(record.partition_key, record.data) for record in read.records] == [(None, b"keyless"), ("k", b"keyed")]


async def test_a_consumer_is_registered_with_tags(control, arn, fake):
    consumer = await control.register_consumer(arn, "c", {"team": "billing"})
    assert fake.tags(consumer.arn) == {"team": "billing"}


async def test_the_limits_of_the_account_are_described(control, fake):
    fake.create_stream("auto", 3, distribution="AUTO")
    assert await control.describe_limits() == AccountLimits(5, 20_000, 1, 50)
    assert await control.has_advantage() is False


async def test_a_dry_run_asks_for_a_subscription_and_takes_none(control, arn, fake, clock):
    consumer = await control.register_consumer(arn, "c")
    assert await control.knows_dry_run(FIRST)
    clock.now += 1
    await control.try_to_subscribe(consumer.arn, FIRST)
    assert fake.subscriptions("s", FIRST).made == 0
    clock.now += 1
    with pytest.raises(errors.ResourceNotFoundError):
        await control.try_to_subscribe(f"{arn}/consumer/other:1", FIRST)


async def test_describe_stream_returns_the_key_that_encrypts_the_records(control, fake):
    assert (await control.describe_stream()).key_id is None
    fake.encrypt("s", "alias/own")
    assert (await control.describe_stream()).key_id == "alias/own"


async def test_reading_with_a_key_that_does_not_work_is_an_error_of_kms(control, fake):
    [first, *_] = await control.list_shards()
    fake.encrypt("s", "alias/own")
    fake.fail_key("s", "KMSDisabledException")
    with pytest.raises(errors.KmsError, match="KMSDisabledException"):
        await control.behind_latest(first.shard_id, Position.trim_horizon())


async def test_a_deleted_stream_is_deleting_and_then_not_found(control, fake, clock):
    fake.delete_stream("s")
    assert (await control.describe_stream()).status == "DELETING"
    clock.now += 1
    with pytest.raises(errors.ResourceNotFoundError) as caught:
        await control.describe_stream()
    assert caught.value.status == 400


async def test_an_unknown_stream_is_not_found(control_of):
    other = control_of("other")
    for call in (other.describe_stream, other.list_shards):
        with pytest.raises(errors.ResourceNotFoundError):
            await call()


async def test_shards_are_listed_with_their_parents(control, fake):
    lower, upper = fake.split("s", FIRST, 1000)
    child = fake.merge("s", upper, SECOND)
    shards = {shard.shard_id: shard for shard in await control.list_shards()}
    assert list(shards) == [FIRST, SECOND, lower, upper, child]
    assert [shard.is_open for shard in shards.values()] == [False, False, True, False, True]
    assert shards[lower].parents == (FIRST,)
    assert shards[child].parents == (upper, SECOND)
    assert (shards[lower].hash_key_range.starting_hash_key, shards[lower].hash_key_range.ending_hash_key) == (
        "0",
        "999",
    )
    assert shards[FIRST].ending_sequence_number is not None
    assert shards[child].ending_sequence_number is None


async def test_all_pages_of_shards_are_listed(control_of, fake):
    fake.create_stream("wide", 2100)
    shards = await control_of("wide").list_shards()
    assert [shard.shard_id for shard in shards] == [f"shardId-{number:012d}" for number in range(2100)]


async def test_shards_that_were_open_at_a_time_are_listed(control, fake, clock):
    then = clock()
    clock.now += 10
    lower, upper = fake.split("s", FIRST, 1000)
    clock.now += 10
    assert await control.shards_open_at(then) == {FIRST, SECOND}
    assert await control.shards_open_at(clock()) == {SECOND, lower, upper}


async def test_an_expired_shard_is_not_listed(control, fake):
    children = fake.split("s", FIRST)
    fake.retain("s", -0.001)
    assert [shard.shard_id for shard in await control.list_shards()] == [SECOND, *children]


async def test_a_consumer_passes_through_creating_active_and_deleting(control, arn, clock):
    registered = await control.register_consumer(arn, "c")
    assert registered == FanOutConsumer("c", registered.arn, "CREATING")
    assert await control.describe_consumer(arn, "c") == registered
    clock.now += 1
    assert (await control.describe_consumer(arn, "c")).status == "ACTIVE"
    await control.deregister_consumer(registered.arn)
    assert (await control.describe_consumer(arn, "c")).status == "DELETING"
    with pytest.raises(errors.ResourceInUseError):
        await control.register_consumer(arn, "c")
    clock.now += 1
    with pytest.raises(errors.ResourceNotFoundError):
        await control.describe_consumer(arn, "c")
    assert (await control.register_consumer(arn, "c")).arn != registered.arn


async def test_registering_a_consumer_twice_is_resource_in_use(control, arn):
    await control.register_consumer(arn, "c")
    with pytest.raises(errors.ResourceInUseError, match="already exists"):
        await control.register_consumer(arn, "c")


async def test_registering_too_many_consumers_is_throttled(control, arn, clock):
    for name in "ab":
        await control.register_consumer(arn, name)
    with pytest.raises(errors.ThrottledError, match="being created"):
        await control.register_consumer(arn, "c")
    clock.now += 1
    await control.register_consumer(arn, "c")
    with pytest.raises(errors.ThrottledError, match="limit"):
        await control.register_consumer(arn, "d")


async def test_an_unknown_consumer_is_not_found(control, arn):
    with pytest.raises(errors.ResourceNotFoundError):
        await control.describe_consumer(arn, "c")
    with pytest.raises(errors.ResourceNotFoundError):
        await control.deregister_consumer(f"{arn}/consumer/c:1")
    with pytest.raises(errors.ResourceNotFoundError):
        await control.register_consumer(arn + "x", "c")


async def test_an_invalid_consumer_name_is_rejected(control, arn):
    with pytest.raises(errors.EfoError, match="failed to satisfy constraint"):
        await control.register_consumer(arn, "a b")


async def test_all_consumers_of_a_stream_are_listed(control, arn, clock):
    assert list(await control.list_consumers(arn)) == []
    registered = [await control.register_consumer(arn, name) for name in "ab"]
    assert list(await control.list_consumers(arn)) == registered
    assert registered[0].created_at == int(clock.now)
    clock.now += 1
    assert [consumer.status for consumer in await control.list_consumers(arn)] == ["ACTIVE"] * 2
    with pytest.raises(errors.ResourceNotFoundError):
        await control.list_consumers(arn + "x")


async def test_all_pages_of_consumers_are_listed():
    class Client:
        async def list_stream_consumers(self, **arguments):
            requests.append(arguments)
            number = len(requests)
            consumer = {"ConsumerName": f"c{number}", "ConsumerARN": f"a:{number}", "ConsumerStatus": "ACTIVE"}
            more = {"NextToken": "more"} if number == 1 else {}
            return {"Consumers": [consumer], **more, "ResponseMetadata": {"HTTPHeaders": {}}}

    requests = []
    consumers = await AwsControlPlane(Aiobotocore(Client()), Unreachable(), "s", None).list_consumers("arn")
    assert [consumer.name for consumer in consumers] == ["c1", "c2"]
    assert requests == [{"StreamARN": "arn"}, {"StreamARN": "arn", "NextToken": "more"}]


async def test_behind_latest_returns_the_distance_of_a_position_to_the_tip(control, fake, clock):
    for data in (b"1", b"2", b"3"):
        fake.put("s", "k", data, explicit_hash_key="0")
        clock.now += 2
    numbers = [record.sequence_number for record in fake.records("s")[FIRST]]
    for position, seconds in [
        (Position.trim_horizon(), 4),
        (Position.after(numbers[0]), 2),
        (Position.at(numbers[0]), 4),
        (Position.after(numbers[2]), 0),
        (Position.latest(), 0),
    ]:
        assert await control.behind_latest(FIRST, position) == pytest.approx(seconds * 1000, abs=5), position
    with pytest.raises(errors.ResourceNotFoundError):
        await control.behind_latest("shardId-000000000009", Position.latest())


async def read(control, position, limit=100):
    return await control.get_records(await control.get_shard_iterator(FIRST, position), limit)


async def test_get_records_reads_on_from_a_position_and_never_more_than_the_limit(control, fake, clock):
    fake.encrypt("s")
    for data in (b"1", b"\x00\xff", b"3"):
        fake.put("s", "ключ", data, explicit_hash_key="0")
        clock.now += 2
    records = tuple(fake.records("s")[FIRST])
    first = await read(control, Position.trim_horizon(), limit=2)
    assert first.records == records[:2]
    assert first.millis_behind_latest == pytest.approx(2000, abs=5)
    rest = await control.get_records(first.iterator, 2)
    assert (rest.records, rest.millis_behind_latest, rest.children) == (records[2:], 0, ())
    assert (await read(control, Position.after(records[0].sequence_number))).records == records[1:]
    assert (await read(control, Position.at_timestamp(clock.now - 3))).records == records[2:]
    assert (await read(control, Position.latest())).records == ()


async def test_the_last_read_of_a_shard_names_its_children_and_has_no_iterator(control, fake):
    children = fake.split("s", FIRST, 1000)
    last = await read(control, Position.trim_horizon())
    assert last.iterator is None
    assert [(child.shard_id, child.parent_shards) for child in last.children] == [(key, (FIRST,)) for key in children]
    assert last.children[0].hash_key_range.ending_hash_key == "999"


async def test_an_old_iterator_and_one_in_the_future_are_refused(control, fake, clock):
    iterator = await control.get_shard_iterator(FIRST, Position.trim_horizon())
    # Not by waiting: a signature would be too old as well.
    fake.faults.add(Refuse(code="ExpiredIteratorException"), When(operation="GetRecords"))
    with pytest.raises(errors.ExpiredIteratorError):
        await control.get_records(iterator, 1)
    with pytest.raises(errors.ServiceError, match="future"):
        await control.get_shard_iterator(FIRST, Position.at_timestamp(clock.now + 60))


async def test_the_sixth_read_of_a_shard_within_a_second_is_throttled(control):
    iterator = await control.get_shard_iterator(FIRST, Position.trim_horizon())
    for _ in range(5):
        await control.get_records(iterator, 1)
    with pytest.raises(errors.ThrottledError):
        await control.get_records(iterator, 1)
