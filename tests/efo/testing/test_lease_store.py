"""`efo.testing.check_lease_store`, and the stores that it is for: `efo.leases.KeyValueLeaseStore`."""

from __future__ import annotations

import pytest
import trio

import efo
import efo.testing
from efo.errors import ConfigurationError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from tests.efo.leases.stores.all_stores import KeyValueStore

LEASE = efo.leases.Lease("s", efo.Checkpoint.LATEST)


def opening(kind=KeyValueStore):
    tables = {}
    return lambda name: kind(tables.setdefault(name, {}))


async def test_a_store_that_keeps_its_condition_conforms(autojump_clock):
    await efo.testing.check_lease_store(opening())


async def test_a_store_is_opened_and_closed(autojump_clock):
    shared = {}
    await efo.testing.check_lease_store(lambda name: shared.setdefault(name, efo.leases.MemoryLeaseStore()))


async def test_what_a_store_does_wrong_is_named(autojump_clock):
    class Unconditional(KeyValueStore):
        async def replace_row(self, key, _old, new):
            return await super().replace_row(key, self.rows.get(key), new)

    with pytest.raises(AssertionError, match="a second create adds nothing: True is not False"):
        await efo.testing.check_lease_store(opening(Unconditional))


async def test_a_store_whose_names_share_their_leases_is_named(autojump_clock):
    rows = {"x": b"{}"}
    with pytest.raises((AssertionError, LeaseStoreCorruptError)):
        await efo.testing.check_lease_store(lambda _name: KeyValueStore(rows))
    with pytest.raises(ConfigurationError, match="open_store"):
        await efo.testing.check_lease_store(KeyValueStore({}))


@pytest.mark.parametrize("method", ["read_rows", "replace_row"])
async def test_an_exception_of_the_client_is_an_outage_if_the_store_says_so(autojump_clock, method):
    class DownError(Exception):
        pass

    store = KeyValueStore({})

    async def fail(*_):
        raise DownError("hunter2")

    setattr(store, method, fail)
    with pytest.raises(DownError):
        await store.create(LEASE) if method == "replace_row" else await store.list()
    store.unavailable = (DownError,)
    with pytest.raises(LeaseStoreUnavailableError, match=f"^{method} of the lease store failed: DownError") as caught:
        await store.create(LEASE) if method == "replace_row" else await store.list()
    assert "hunter2" not in str(caught.value)


async def test_a_row_that_something_else_wrote_is_corrupt(autojump_clock):
    with pytest.raises(LeaseStoreCorruptError, match="lease s cannot be read"):
        await KeyValueStore({"s": b'{"x": "hunter2"}'}).get("s")


async def test_a_row_that_others_change_all_the_time_is_an_outage(autojump_clock):
    class Busy(KeyValueStore):
        async def replace_row(self, key, old, new):
            return old is None and await super().replace_row(key, old, new)

    store = Busy({})
    await store.create(LEASE)
    for call in (store.take(LEASE, "ann"), store.delete("s")):
        with pytest.raises(LeaseStoreUnavailableError, match="changed by others"):
            await call


async def test_a_consumer_reads_with_a_store_of_its_own(autojump_clock):
    rows, got = {}, []

    async def handle(batch):
        got.extend(record.data for record in batch)

    async with efo.testing.FakeKinesis() as fake:
        fake.create_stream("orders", 2)
        fake.put_many("orders", [(str(number), b"%d" % number) for number in range(20)])
        store = KeyValueStore(rows)
        await read_all(fake, store, handle, lambda: len(got) == 20)
        assert all(lease.owner is None and not lease.checkpoint.is_sentinel for lease in await store.list())
        await read_all(fake, KeyValueStore(rows), handle, lambda: True)
        assert len(got) == 20


async def read_all(fake, store, handle, is_done):
    opening = efo.open_consumer(fake.kinesis("orders"), application="billing", leases=store)
    async with opening as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, efo.Handler(handle))
        await trio.sleep(30)
        assert is_done()
        consumer.drain()
