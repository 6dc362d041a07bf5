"""One damaged answer is no damage: stores, Kinesis and proxies that answer wrongly for a while, and then rightly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final
from unittest.mock import patch

import trio

from efo.errors import EfoError, LeaseStoreCorruptError
from efo.model import Batch, Checkpoint, Lease
from efo.testing.faults.kinds import Refuse
from efo.testing.faults.script import ALWAYS, FaultScript, When
from efo_service.config.settings import Settings
from efo_service.factories import lease_store, object_log
from efo_service.factories.sinks import open_sink
from efo_service.object_store.memory import MemoryStore
from efo_service.relay.errors import LogError
from proofs.attacks.programs import STREAM, World, world
from proofs.attacks.service import until
from proofs.ports import free_port
from proofs.situations.situation import Cases, Outcome
from tests.efo_service.log.objects.logs import SHARD, STREAM as LOGGED, Log, make_records
from tests.efo_service.relay.relaying import relay_all

cases = Cases("answers", seconds=240)

PAGE: Final = b"<!DOCTYPE html><html><body>Sign in to the network</body></html>"
_SPOILS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda _content: b"",
    "replaced by a page": lambda _content: PAGE,
    "replaced by another service's JSON": lambda _content: b'{"message":"Service Unavailable"}',
    "nested without an end": lambda _content: b"[" * 100_000,
    "changed in each byte": lambda content: bytes(byte ^ 1 for byte in content),
}


def _settings() -> Settings:
    return Settings(
        kinesis={"stream": LOGGED},
        consumer={"application": "app"},
        relay={"directory": "s3://logs/efo"},
        leases={"store": "log"},
        _env_file=None,
    )


class _Damaged:
    """Spoils what arrives of objects with a name, for some seconds."""

    def __init__(self, name: str, spoil: Callable[[bytes], bytes], seconds: float) -> None:
        self._name, self._spoil = name, spoil
        self._until = time.monotonic() + seconds

    def __call__(self, key: str, content: bytes) -> bytes:
        return self._spoil(content) if self._name in key and time.monotonic() < self._until else content


def _register(how: str, name: str, spoil: Callable[[bytes], bytes]) -> None:
    @cases.case("waited for, then records are committed", name=f"object store: {name} {how} for 8 s at the start")
    async def _() -> Outcome:
        store = MemoryStore()
        log = Log(store)
        log.append(log.writer(), 3)
        store.spoil = _Damaged(name, spoil, 8)
        with patch.object(object_log, "open_store", lambda _url: store):
            async with open_sink(_settings()) as destination:
                await relay_all(destination, Batch("s", SHARD, make_records(2, 3), "9", 0, 0))
        store.spoil = lambda _key, content: content
        return Outcome(f"the log ends at {log.check()}", log.check() == 5)


for _how, _spoil in _SPOILS.items():
    _register(_how, "catalog.json", _spoil)
for _name in ("head.json", "commits", "probe"):
    _register("replaced by a page", _name, _SPOILS["replaced by a page"])


@cases.case("said, with what to do, after half a minute", name="object store: a catalog that stays damaged")
async def _() -> Outcome:
    store = MemoryStore()
    Log(store).writer()
    store.spoil = _Damaged("catalog.json", _SPOILS["cut"], 1000)
    began, error = time.monotonic(), ""
    with patch.object(object_log, "open_store", lambda _url: store):
        try:
            async with open_sink(_settings()):
                error = "none"
        except LogError as found:
            error = str(found)
    seconds = time.monotonic() - began
    return Outcome(f"{error[:60]}, after {seconds:.0f} s", "restore" in error and 25 < seconds < 60)


@cases.case("read again; nothing ends", name="object store: the leases' document cut for 8 s, at the start and later")
async def _() -> Outcome:
    store, did = MemoryStore(), 0
    with patch.object(lease_store, "open_store", lambda _url: store):
        async with lease_store.open_leases(_settings()) as leases:
            await leases.create(Lease("s-0", Checkpoint.LATEST))
        store.spoil = _Damaged("efo-leases", _SPOILS["cut"], 8)
        async with lease_store.open_leases(_settings()) as leases:
            did += len(await leases.list())
            held = store.objects[next(iter(store.objects))]
            held.generation += 1000
            store.spoil = _Damaged("efo-leases", _SPOILS["cut"], 8)
            with trio.move_on_after(60):
                while True:
                    try:
                        did += len(await leases.list())
                        break
                    except LeaseStoreCorruptError:
                        return Outcome("called damaged", is_right=False)
                    except EfoError:
                        await trio.sleep(0.5)
    return Outcome(f"{did} of 2 lists", did == 2)


# --- Kinesis ---------------------------------------------------------------------------------------------------------

_CONSUMER: Final = """
import json
async def main():
    seen, got = [], []
    async def handle(record, batch):
        await trio.lowlevel.checkpoint()
        got.append(record.data.decode())
        if len(got) == 5:
            scope.cancel()
    with trio.move_on_after(100) as scope:
        await efo.consume("orders", record_handler=handle, leases="memory:", observer=seen.append,
                          settings=efo.ConsumerSettings(read_mode=MODE), **options)
    calls = sorted({event.call for event in seen if isinstance(event, efo.events.StartDelayed)})
    print(json.dumps([sorted(got), calls]))
trio.run(main)
"""
_THROTTLED: Final = Refuse("LimitExceededException", "Rate exceeded", 400)
_FAILED: Final = Refuse("InternalFailure", "", 500)
_ODD: Final = Refuse("BadRequest", "<html>", 400)


def _consume(here: World, mode: str) -> tuple[list[str], list[str], int | None]:
    here.put(5)
    ended = here.run(_CONSUMER.replace("MODE", repr(mode)), 130)
    lines = [line for line in ended.out.splitlines() if line.startswith("[")]
    got, calls = json.loads(lines[-1]) if lines else ([], [])
    return got, calls, ended.status


def _start(mode: str, operation: str, fault: Refuse, times: int, what: str) -> None:
    @cases.case(
        "waited for, by its name, then everything is read",
        name=f"{mode}: {operation} {what} {times} times at the start",
    )
    def _() -> Outcome:
        with world(faults=FaultScript([(fault, When(operation=operation, times=times))])) as here:
            got, calls, status = _consume(here, mode)
        is_right = got == [str(n) for n in range(5)] and calls == [operation] and status == 0
        return Outcome(f"{len(got)} of 5 records, waited for {calls}, exit {status}", is_right)


# aiobotocore repeats a call that fails by itself, and each of its tries is one.
for _operation in ("DescribeStreamSummary", "ListShards", "DescribeStreamConsumer", "RegisterStreamConsumer"):
    _start("fanout", _operation, _FAILED, 12, "fails")
_start("fanout", "ListShards", _THROTTLED, 20, "is throttled")
_start("auto", "ListShards", _THROTTLED, 20, "is throttled")
_start("auto", "DescribeStreamSummary", _FAILED, 12, "fails")
_start("polling", "ListShards", _FAILED, 12, "fails")


@cases.case("made again, everything is read", name="a single odd 400 to SubscribeToShard")
def _() -> Outcome:
    with world(faults=FaultScript([(_ODD, When(operation="SubscribeToShard", times=2))])) as here:
        got, _, status = _consume(here, "fanout")
    return Outcome(f"{len(got)} of 5 records, exit {status}", len(got) == 5 and status == 0)


@cases.case("made again, everything is read", name="a single odd 400 to GetShardIterator and GetRecords")
def _() -> Outcome:
    rules = [(_ODD, When(operation=name, times=1)) for name in ("GetShardIterator", "GetRecords")]
    with world(faults=FaultScript(rules)) as here:
        got, _, status = _consume(here, "polling")
    return Outcome(f"{len(got)} of 5 records, exit {status}", len(got) == 5 and status == 0)


@cases.case(
    "not ready, with the call; ready when it is over; no restart", name="efo run: ListShards is throttled for a while"
)
def _() -> Outcome:
    from efo_service.web.probe import ServiceAddress  # noqa: PLC0415 - of the service

    port = free_port()
    with world(faults=FaultScript([(_THROTTLED, When(operation="ListShards", times=ALWAYS, stop=25))])) as here:
        here.put(5)
        process = here.start("-P", "-m", "efo_service", "run", EFO_SERVICE__PORT=str(port))
        address, reasons = ServiceAddress("127.0.0.1", port), set[str]()

        def is_ready() -> bool:
            try:
                status, body = address.get("/readyz")
            except EfoError:
                return False
            reasons.add(body)
            return status == 200

        ready = until(is_ready, 90)
        reported = any("the start waits for Kinesis: ListShards" in each for each in reasons)
        alive = process.poll() is None
        process.terminate()
        ended = here.wait(process)
    did = f"ready {ready}, reported {reported}, the stream {STREAM} is read on, exit {ended.status}"
    return Outcome(did, ready and reported and alive and ended.status == 0)
