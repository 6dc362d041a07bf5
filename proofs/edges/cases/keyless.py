"""Records without a partition key, and streams whose record distribution strategy is AUTO or changes to it and back."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

import efo
import efo.aio
import efo.sync
from efo.events import DistributionChanged
from efo.model import MAX_HASH_KEY
from efo.protocol import eventstream
from efo.testing import FakeKinesis, InMemoryStream
from proofs.edges.auto_streams import (
    KEY,
    SHARDS,
    STREAM,
    Reader,
    consume,
    data,
    efo_run,
    lost,
    put_all,
    run_efo,
    served,
    text_of,
)
from proofs.situations.situation import Cases, Outcome

cases = Cases("keyless")

FIRST: Final = "shardId-000000000000"
MODES: Final[tuple[efo.ReadMode, ...]] = ("fanout", "polling", "auto")
AT_ONCE, USAGE = 5, 64
FAST: Final = 0.25


def _reading(mode: efo.ReadMode) -> None:
    async def read() -> Outcome:
        async with served() as (fake, options):
            expected = put_all(fake)
            reader = Reader(len(expected))
            await reader.run(options, read_mode=mode)
            return reader.outcome(expected)

    async def switch() -> Outcome:
        async with served("USER_PARTITION_KEY") as (fake, options):
            reader = Reader(100)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(reader.run, options, read_mode=mode))
                expected: dict[bytes, str | None] = {}
                for number in range(100):
                    if number % 20 == 0:
                        is_auto = number % 40 == 0
                        fake.distribute(STREAM, "AUTO" if is_auto else "USER_PARTITION_KEY")
                    expected[data(number)] = key = None if is_auto else KEY
                    fake.put(STREAM, key, data(number))
                    await trio.sleep(0.05)
            return reader.outcome(expected)

    cases.case("the key None; aggregates whole; the shard goes on", name=f"records without keys by {mode}")(read)
    cases.case("every record once, with its key or None", name=f"a stream that changes twice, read by {mode}")(switch)


for _mode in MODES:
    _reading(_mode)


def _line(**members: Any) -> str:
    return json.dumps(members) + "\n"


def _recording(path: Path, *messages: bytes) -> None:
    """Write a recording of one call on one shard, with these messages of the event stream."""
    shard = {"id": FIRST, "start": "0", "end": str(MAX_HASH_KEY), "parents": [], "first": "0"}
    call = {"stream": STREAM, "shard": FIRST, "position": "TRIM_HORIZON"}
    lines = [_line(capture=2), _line(stream=STREAM, shards=[shard]), _line(call=1, at=0.0, subscribe=call)]
    lines += [_line(call=1, at=0.1, data=b64encode(message).decode()) for message in messages]
    path.write_text("".join([*lines, _line(call=1, at=60.0, end=True)]))


def _event(*records: Mapping[str, Any], kind: str = "SubscribeToShardEvent", **more: Any) -> bytes:
    sequence = records[-1]["SequenceNumber"] if records else "1"
    event = {"Records": records, "ContinuationSequenceNumber": sequence, "MillisBehindLatest": 0, **more}
    headers = {":message-type": "event", ":event-type": kind, ":content-type": "application/x-amz-json-1.1"}
    return eventstream.encode(headers, json.dumps(event).encode())


def _record(number: int, **members: Any) -> dict[str, Any]:
    return {"SequenceNumber": str(number), "Data": b64encode(data(number)).decode(), **members}


@cases.case("None for a key that is absent or null; what AWS adds does no harm")
async def what_the_service_may_send_or_leave_out() -> Outcome:
    """Read records with as few members as the service model allows, and with members and messages that nobody knows."""
    path = Path.home() / "recording"
    _recording(
        path,
        _event(kind="initial-response"),
        _event(_record(1), _record(2, PartitionKey=None)),
        _event(kind="SomethingNew"),
        eventstream.encode({":message-type": "news", ":news-type": "x"}, b"{}"),
        _event(_record(3, PartitionKey=KEY, EncryptionType="QUANTUM", New={"a": 1})),
        _event(_record(4, PartitionKey=KEY, ApproximateArrivalTimestamp=1.5), ChildShards=[], New=[1]),
    )
    async with FakeKinesis() as fake:
        fake.replay(path)
        reader = Reader(4)
        await reader.run({"stream": fake.kinesis(STREAM)}, seconds=15)
    return reader.outcome({data(1): None, data(2): None, data(3): KEY, data(4): KEY})


@cases.case("several at once, at most as many as allowed, and none twice")
async def several_keys_at_once_of_records_without_one() -> Outcome:
    running = most = 0
    got: list[bytes] = []
    done = trio.Event()

    async def handle(record: efo.Record, _batch: efo.Batch) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(0.05)
        running -= 1
        got.append(record.data)
        if len(set(got)) == 60:  # noqa: PLR2004 - all of them
            done.set()

    async with served(shards=1) as (fake, options):
        fake.put_many(STREAM, [(None, data(number)) for number in range(60)])
        with trio.move_on_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(consume, options, record_handler=handle, key_concurrency=AT_ONCE))
                await done.wait()
                nursery.cancel_scope.cancel()
    is_right = len(got) == len(set(got)) and most == AT_ONCE
    return Outcome(f"{len(got)} of 60 records, {most} at once", is_right, lost(got, 60))


@cases.case("a key may be left out; every shard takes records; each has a result")
async def a_producer_without_keys() -> Outcome:
    async with served() as (fake, options):
        async with efo.open_producer(STREAM, **options) as producer:
            deliveries = [await producer.put(data(number)) for number in range(200)]
        shards = {(await delivery).shard_id for delivery in deliveries}
        got = [record.data for records in fake.records(STREAM).values() for record in records]
        return Outcome(f"{len(got)} records in {len(shards)} shards", len(shards) == SHARDS, lost(got, 200))


def a_producer_of_the_other_loops() -> Outcome:
    async def put(stream: InMemoryStream) -> None:
        async with efo.aio.open_producer(stream.open()) as producer:
            await producer.put(data(0))

    import asyncio  # noqa: PLC0415 - of this case alone

    stream = InMemoryStream(shards=SHARDS, distribution="AUTO")
    asyncio.run(put(stream))
    with efo.sync.open_producer(stream.open()) as synchronous:
        synchronous.put(data(1)).result(20)
    keys = {record.data: record.partition_key for record in stream.records()}
    return Outcome(f"keys: {[*keys.values()]}", keys == {data(0): None, data(1): None}, lost(keys, 2))


cases.case("the same through efo.aio and efo.sync")(a_producer_of_the_other_loops)


@cases.case("refused at the call, with what to do, and nothing is put")
async def a_key_that_is_missing_on_any_other_stream() -> Outcome:
    async with served("USER_PARTITION_KEY") as (fake, options):
        async with efo.open_producer(STREAM, **options) as producer:
            try:
                await producer.put(data(0))
            except efo.errors.ConfigurationError as error:
                reported = str(error)
            else:
                reported = "accepted"
        is_right = "partition_key is missing" in reported and not any(fake.records(STREAM).values())
        return Outcome(reported[:110], is_right)


@cases.case("refused by name at the opening")
async def order_and_aggregates_of_a_stream_without_keys() -> Outcome:
    reported = []
    async with served() as (_, options):
        for setting in ("aggregate", "ordered"):
            try:
                async with efo.open_producer(STREAM, settings=efo.ProducerSettings(**{setting: True}), **options):
                    reported.append("opened")
            except efo.errors.ConfigurationError as error:
                reported.append(str(error))
    is_right = all(f"{name}=True" in text for name, text in zip(("aggregate", "ordered"), reported, strict=True))
    return Outcome("; ".join(each[:60] for each in reported), is_right)


@cases.case("reported in one event, nothing lost: aggregates become single records")
async def a_producer_whose_stream_changes_to_auto() -> Outcome:
    events: list[object] = []
    settings = efo.ProducerSettings(aggregate=True, ordered=True, linger_seconds=0.02)
    async with served("USER_PARTITION_KEY") as (fake, options):
        async with efo.open_producer(STREAM, settings=settings, observer=events.append, **options) as producer:
            for number in range(200):
                if number == 100:  # noqa: PLR2004 - half of them
                    fake.distribute(STREAM, "AUTO")
                await producer.put(data(number), f"{KEY} {number % 9}")
                await trio.sleep(0.01)
        reader = Reader(200)
        await reader.run(options)
        reported = [event for event in events if isinstance(event, DistributionChanged)]
        is_right = reported == [DistributionChanged("AUTO", ("aggregate", "ordered"))]
        return Outcome(f"reported {len(reported)} times, {len(reader.keys)} of 200", is_right, lost(reader.keys, 200))


@cases.case("each record without a key has an error that says so; all others are stored")
async def a_producer_whose_stream_changes_back() -> Outcome:
    async with served() as (fake, options):
        async with efo.open_producer(STREAM, settings=efo.ProducerSettings(linger_seconds=0.5), **options) as producer:
            without = [await producer.put(data(number)) for number in range(5)]
            keyed = [await producer.put(data(number), KEY) for number in range(5, 10)]
            fake.distribute(STREAM, "USER_PARTITION_KEY")
            await producer.flush()
            errors = []
            for delivery in without:
                try:
                    delivery.result()
                except efo.errors.DeliveryError as error:
                    errors.append(str(error))
            for delivery in keyed:
                await delivery
        got = [record.data for records in fake.records(STREAM).values() for record in records]
        is_reported = len(errors) == len(without) and all("put it with a key" in error for error in errors)
        silent = len({data(n) for n in range(10)}.difference(got)) - len(errors)
        return Outcome(f"{len(got)} stored, {len(errors)} reported", is_reported, {"records_lost_silently": silent})


@cases.case("the dead letter has the record, with the key None")
async def a_record_without_a_key_that_fails() -> Outcome:
    dead_letters: list[efo.DeadLetter] = []
    done = trio.Event()

    async def keep(dead_letter: efo.DeadLetter) -> None:
        dead_letters.append(dead_letter)
        done.set()

    async def fail(record: efo.Record, _batch: efo.Batch) -> None:
        raise ValueError(record.data)

    policy = efo.FailurePolicy(attempts=1, then="dead_letter", dead_letter=keep)
    async with served() as (fake, options):
        fake.put(STREAM, None, data(0))
        with trio.move_on_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(consume, options, record_handler=fail, on_error=policy))
                await done.wait()
                nursery.cancel_scope.cancel()
    keys = [dead_letter.record.partition_key for dead_letter in dead_letters]
    return Outcome(f"keys of the dead_letters: {keys}", keys == [None], lost([e.record.data for e in dead_letters], 1))


# --- the service and the commands ------------------------------------------------------------------------------


def _relaying(name: str, **environment: str) -> None:
    async def run() -> Outcome:
        async with served("USER_PARTITION_KEY") as (fake, options):
            fake.put(STREAM, KEY, data(1000))
            async with efo_run(options, **environment):
                await _until_relayed(1, options, environment)
                fake.distribute(STREAM, "AUTO")
                expected = {**put_all(fake), data(1000): KEY}
                fake.distribute(STREAM, "USER_PARTITION_KEY")
                expected[data(1001)] = KEY
                fake.put(STREAM, KEY, data(1001))
                await _until_relayed(len(expected), options, environment)
            found = await _relayed(options, environment)
        missing = len(expected.keys() - {each for each, _ in found})
        did = f"{len(found)} of {len(expected)} records"
        return Outcome(did, sorted(found) == sorted(expected.items()), {"records_lost_silently": missing})

    cases.case("every record once; the key null where there is none", name=name, seconds=120)(run)


async def _until_relayed(count: int, options: Mapping[str, str], environment: Mapping[str, str]) -> None:
    with trio.move_on_after(40):
        while len(await _relayed(options, environment)) < count:  # noqa: ASYNC110 - another process writes them
            await trio.sleep(FAST)


async def _relayed(options: Mapping[str, str], environment: Mapping[str, str]) -> list[tuple[bytes, str | None]]:
    """Return the data and the keys of what the sink has."""
    if environment["EFO_RELAY__SINK"] == "log":
        _, text = await run_efo("log", "export", "--topic", STREAM, options=options, environment=environment)
    else:
        text = text_of(environment["EFO_RELAY__JSONL_FILE"])
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return [(b64decode(line["value"]), line["key"]) for line in lines]


_relaying("the service relays into the log", EFO_RELAY__SINK="log", EFO_RELAY__DIRECTORY="log")
_relaying("the service relays into JSON lines", EFO_RELAY__SINK="jsonl", EFO_RELAY__JSONL_FILE="lines.jsonl")


@cases.case("puts lines without keys, and shows them with - and null")
async def efo_put_and_efo_tail() -> Outcome:
    async with served() as (fake, options):
        code, _ = await run_efo("put", STREAM, options=options, stdin=b"one\ntwo\n")
        tail = ("tail", STREAM, "--from", "trim_horizon", "--until", "now")
        _, text = await run_efo(*tail, options=options)
        _, lines = await run_efo(*tail, "--json", options=options)
        shown = [line.split()[2:] for line in text.splitlines()]
        keys = [json.loads(line)["key"] for line in lines.splitlines()]
        stored = sum(map(len, fake.records(STREAM).values()))
    is_right = code == 0 and sorted(shown) == [["-", "one"], ["-", "two"]] and keys == [None, None]
    return Outcome(f"exit {code}, stored {stored}, shown {shown}, keys {keys}", is_right and stored == len(shown))


@cases.case("exit 64, naming the strategy, and nothing is put")
async def efo_put_of_a_line_whose_key_is_null_on_any_other_stream() -> Outcome:
    line = json.dumps({"key": None, "value": "eA=="}).encode()
    async with served("USER_PARTITION_KEY") as (fake, options):
        code, _ = await run_efo("put", STREAM, "--format", "json", options=options, stdin=line)
        stored = sum(map(len, fake.records(STREAM).values()))
        return Outcome(f"exit {code}, stored {stored}", code == USAGE and stored == 0)


@cases.case("passes: fan-out is tried by a dry run, and the limits of the account are reported")
async def the_doctor_of_a_stream_without_keys() -> Outcome:
    async with served() as (fake, options):
        await run_efo("consumers", "register", options=options)
        code, text = await run_efo("doctor", "--json", "--timeout", "30", options=options)
        put = sum(map(len, fake.records(STREAM).values()))
    results = {check["name"]: check["result"] for check in json.loads(text)["checks"]}
    found = [results[name] for name in ("kinesis:SubscribeToShard", "account", "fan-out consumer")]
    return Outcome(f"exit {code}: {found}", code == put == 0 and found == ["passed"] * 3)


@cases.case("the consumer has the tags from its registration")
async def tags_of_the_consumer() -> Outcome:
    async with served() as (fake, options):
        fake.put(STREAM, None, data(0))
        reader = Reader(1)
        await reader.run(options, consumer_tags={"team": "billing"})
        kinesis = fake.kinesis(STREAM).control_plane
        [consumer] = await kinesis.list_consumers((await kinesis.describe_stream()).arn)
        tags = fake.tags(consumer.arn)
    return Outcome(f"tags {tags}", tags == {"team": "billing"}, lost(reader.keys, 1))
