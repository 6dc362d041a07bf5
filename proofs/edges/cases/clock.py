"""The clock of the host, or of the service's side, is wrong: for a while, at the start, or in steps."""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import partial
from typing import Final

import trio

import efo
from efo.testing import FakeKinesis, FakeSettings, When
from efo.testing.faults import TcpCut
from efo.testing.server import dispatch
from efo.testing.sigv4 import Credential
from proofs.edges.cases.credentials import set_up
from proofs.local_servers.credential_services import CredentialServices, serve_credentials
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("clock")

SKEW: Final = 600.0
KEY: Final = "AKSKEW"


class World:
    """A fake that checks signatures by a clock that is `ahead` of the host's: the host's is set."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self.log = io.StringIO()
        logging.getLogger().addHandler(logging.StreamHandler(self.log))
        known = {KEY: Credential(f"{CANARY}secret")}
        self.fake = FakeKinesis(settings=FakeSettings(credentials=known), clock=time.time)
        right = time.time
        time.time = lambda: right() - self.ahead  # in this process alone, for all but the fake
        os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=f"{CANARY}secret", AWS_REGION="us-east-1")

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[efo.KinesisClient]:
        """Serve the fake; yield a client of its stream."""
        async with self.fake, self.fake.serve() as address:
            self.fake.create_stream("orders")
            stream = efo.open_kinesis("orders", endpoint_url=address.url, ca_file=str(address.ca_file))
            async with stream as kinesis:
                yield kinesis

    def reported(self, skew: float) -> bool:
        """Return whether the log names the skew, within two seconds."""
        return any(f"{abs(skew) + s:.0f} s" in self.log.getvalue() for s in (-2, -1, 0, 1, 2))


async def _read(world: World, skews: tuple[float, ...], *, polled: bool = False, down: float = 3.0) -> Outcome:
    got: list[bytes] = []
    changed = trio.lowlevel.ParkingLot()

    async def bill(record: efo.Record, _batch: efo.Batch) -> None:
        await trio.lowlevel.checkpoint()
        got.append(record.data)
        changed.unpark_all()

    async def reached(count: int) -> bool:
        with trio.move_on_after(25):
            while len(got) < count:
                await changed.park()
        return len(got) >= count

    settings = efo.ConsumerSettings(read_mode="polling" if polled else "fanout")
    async with world.serve() as kinesis, trio.open_nursery() as nursery:
        run = partial(efo.consume, kinesis, record_handler=bill, application="billing", leases="memory:")
        consumer = await nursery.start(partial(run, settings=settings))
        world.fake.put("orders", CANARY, b"0")
        is_right = await reached(1)
        for number, skew in enumerate(skews, 1):
            world.ahead = skew
            world.fake.faults.add(TcpCut(), When(nth=1))
            world.fake.put("orders", CANARY, str(number).encode())
            is_right = is_right and await reached(number + 1)
            await trio.sleep(down)
        consumer.drain()
    wanted = [str(number).encode() for number in range(len(skews) + 1)]
    lost = len(wanted) - len(got)
    reported = all(world.reported(skew) for skew in (world.ahead, *skews) if skew)
    did = f"read {len(got)} of {len(wanted)}, the skew was {'reported' if reported else 'not reported'}"
    return Outcome(did, is_right and reported and got == wanted, {"records_lost_silently": lost})


@cases.case("the first refused call teaches the time; the skew is reported")
async def the_clock_is_ten_minutes_behind_at_the_start() -> Outcome:
    """Start a virtual machine before NTP has run."""
    return await _read(World(SKEW), ())


@cases.case("the first refused call teaches the time; the skew is reported")
async def the_clock_is_ten_minutes_ahead_at_the_start() -> Outcome:
    """Have a wrong clock on the host."""
    return await _read(World(-SKEW), ())


@cases.case("reading goes on; the skew is reported")
async def a_running_consumer_is_ten_minutes_behind_for_a_while() -> Outcome:
    """Suspend and resume the host."""
    return await _read(World(), (SKEW, 0.0))


@cases.case("reading goes on; the skew is reported")
async def a_running_consumer_is_ten_minutes_ahead_for_a_while() -> Outcome:
    """Let somebody set the clock."""
    return await _read(World(), (-SKEW, 0.0))


@cases.case("each step is learned")
async def the_clock_steps_back_and_forth() -> Outcome:
    """Step by more than AWS allows, in both directions, and by a day."""
    return await _read(World(SKEW), (-SKEW, 86_400.0, 0.0), down=1.5)


@cases.case("reading goes on; the skew is reported")
async def a_polling_consumer_is_ten_minutes_behind_for_a_while() -> Outcome:
    """Poll instead of subscribing."""
    return await _read(World(), (SKEW, 0.0), polled=True)


@cases.case("signatures keep the time that works, whatever the date of accepted responses is")
async def a_proxy_writes_a_wrong_date_into_responses() -> Outcome:
    """Let every response have a date of an hour before."""
    setattr(dispatch, "formatdate", lambda at, usegmt: formatdate(at - 3600, usegmt=usegmt))  # noqa: B010 - changed in this process alone
    world = World()
    outcome = await _read(world, (0.0, 0.0), down=1.0)
    is_kept = "clock of this host" not in world.log.getvalue()
    return Outcome(f"{outcome.did}; {'kept' if is_kept else 'changed'} its clock", outcome.is_right and is_kept)


@cases.case("records are put, by the service's time")
async def a_producer_is_ten_minutes_behind() -> Outcome:
    """Put records with a wrong clock."""
    world = World(SKEW)
    async with world.serve() as kinesis, efo.open_producer(kinesis) as producer:
        delivery = await producer.put(CANARY.encode(), partition_key=CANARY)
        stored = await delivery
    did = f"stored in {stored.shard_id}, the skew was {'reported' if world.reported(SKEW) else 'not reported'}"
    return Outcome(did, world.reported(SKEW))


@cases.case("STS is called at its time too")
def a_role_is_assumed_while_the_clock_is_wrong() -> Outcome:
    """Let a profile assume a role, ten minutes behind."""
    services = CredentialServices(prefix=CANARY, skew=SKEW)
    with serve_credentials(services):
        set_up("assume-role", services)
        from efo.aws.credentials import CredentialSource  # noqa: PLC0415 - after the variables

        source = CredentialSource(region="us-east-1")
        source.get_blocking()
    return Outcome(f"{source.provider} after {len(services.asked)} calls", source.provider == "assume-role")
