"""A process with an open consumer or producer that forks, or ends without leaving its `with` block."""

from __future__ import annotations

import subprocess
import sys

import pytest

from efo.testing import FakeKinesisThread, FakeSettings

PRELUDE = """
import asyncio, atexit, gc, multiprocessing, os, sys, threading, time, warnings
import efo, efo.aio, efo.sync
warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads
options = dict(application="app", worker_id="worker")

def reported(function, *args):
    try:
        print(repr(function(*args))[:100], flush=True)
    except efo.errors.EfoError as error:
        print(error.error_type, "multiprocessing.get_context('spawn')" in str(error), flush=True)

def in_child(function, *args):
    child = os.fork()
    if child == 0:
        reported(function, *args)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
FORKED = "forked True\n"


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0, takeover_after=0.0)) as fake:
        fake.create_stream("orders", shards=1)
        for number in range(3):
            fake.put("orders", "key", b"record %d" % number)
        yield fake


def run(kinesis, tmp_path, program, *, status=0):
    """Run a program to its end; return what it wrote to stdout, and to stderr."""
    environment = {**kinesis.environment, "PATH": "", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == status, ended.stderr
    return ended.stdout, ended.stderr


def test_a_forked_child_is_refused_whatever_it_asks_of_a_consumer_and_the_parent_reads_on(kinesis, tmp_path):
    out, _ = run(
        kinesis,
        tmp_path,
        """
def leave(block):
    block.__exit__(None, None, None)

block = efo.sync.open_consumer("orders", **options)
with block as consumer:
    batch = next(consumer)
    for ask in (consumer.status, consumer.shards, consumer.counts, consumer.lineage, consumer.drain):
        in_child(ask)
    in_child(next, consumer)
    in_child(next, consumer.records())
    in_child(consumer.ack, batch)
    in_child(consumer.pause, batch.shard_id)
    in_child(consumer.run, efo.sync.Handler(lambda batch: None))
    in_child(leave, block)
    consumer.ack(batch)
    print(consumer.status().worker_id)
""",
    )
    assert out == FORKED * 11 + "worker\n"


def test_a_forked_child_can_open_its_own(kinesis, tmp_path):
    out, _ = run(
        kinesis,
        tmp_path,
        """
def read():
    with efo.sync.open_consumer("orders", **dict(options, application="forks", worker_id="child")) as mine:
        return len(next(mine).records) > 0

with efo.sync.open_consumer("orders", **dict(options, application="forks")) as consumer:
    pass
with efo.sync.open_producer("orders") as producer:
    in_child(read)
    process = multiprocessing.get_context("fork").Process(target=read)
    process.start()
    process.join()
    assert process.exitcode == 0
    producer.put(b"of the parent", "key").result()
""",
    )
    assert out == "True\n"


def test_a_forked_child_is_refused_by_a_producer(kinesis, tmp_path):
    out, _ = run(
        kinesis,
        tmp_path,
        """
with efo.sync.open_producer("orders", settings=efo.ProducerSettings(linger_seconds=60)) as producer:
    delivery = producer.put(b"of the parent", "key")
    in_child(producer.put, b"of the child", "key")
    in_child(producer.put_many, [])
    in_child(producer.flush)
    in_child(producer.close)
    in_child(delivery.result)
    in_child(lambda: producer.buffered_records)
print(delivery.result().shard_id)
""",
    )
    assert out == FORKED * 6 + "shardId-000000000000\n"
    stored = [record.data for record in kinesis.records("orders")["shardId-000000000000"]]
    assert b"of the child" not in stored


def test_a_forked_child_that_leaves_the_block_or_exits_ends(kinesis, tmp_path):
    """It runs the rest of the program too: the end of the block, finalizers, and what is called at the exit."""
    out, err = run(
        kinesis,
        tmp_path,
        """
children = []
with efo.sync.open_producer("orders") as producer, efo.sync.open_consumer("orders", **options) as consumer:
    for how in range(3):
        child = os.fork()
        if child == 0 and how == 0:
            sys.exit(7)
        if child == 0 and how == 1:
            raise ValueError("of the child")
        if child == 0:
            break
        children.append(child)
if child:
    print(*[os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in children])
""",
    )
    assert out == "7 1 1\n"
    assert err.count("ForkedError: this process was forked") >= 1
    assert "still open" not in err


def test_a_forked_child_of_asyncio_ends(kinesis, tmp_path):
    out, _ = run(
        kinesis,
        tmp_path,
        """
async def ask(awaitable):
    try:
        await awaitable
    except efo.errors.EfoError as error:
        print(error.error_type, flush=True)

async def main():
    async with efo.aio.open_consumer("orders", **options) as consumer, efo.aio.open_producer("orders") as producer:
        batch = await anext(consumer)
        for make in (lambda: anext(consumer), lambda: producer.put(b"of the child", "key"), producer.flush,
                     lambda: consumer.run(efo.aio.Handler(sleep))):
            child = os.fork()
            if child == 0:  # an event loop of its own, as in a task of multiprocessing
                asyncio._set_running_loop(None)
                asyncio.run(ask(make()))
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        in_child(consumer.status)
        consumer.ack(batch)

async def sleep(batch):
    await asyncio.sleep(0)

asyncio.run(main())
""",
    )
    assert out == "forked\n" * 4 + FORKED


def test_a_handler_that_forks_can_return_in_the_child(kinesis, tmp_path):
    out, _ = run(
        kinesis,
        tmp_path,
        """
def handle(batch):
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        consumer.drain()

with efo.sync.open_consumer("orders", **options) as consumer:
    consumer.run(efo.sync.Handler(handle))
""",
    )
    assert out == "1\n"


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "1 / 0"])
def test_a_producer_that_was_not_closed_sends_what_it_has_when_the_process_ends(kinesis, tmp_path, end):
    before = len(kinesis.records("orders")["shardId-000000000000"])
    _, err = run(
        kinesis,
        tmp_path,
        f"""
block = efo.sync.open_producer("orders", settings=efo.ProducerSettings(linger_seconds=60))
producer = block.__enter__()
producer.put_many([efo.ProducerRecord(b"of the end", "key")] * 5)
{end}
""",
        status={"": 0, "sys.exit(3)": 3, "1 / 0": 1}[end],
    )
    assert "a producer with 5 records in its buffer is still open at the end of the process" in err
    assert len(kinesis.records("orders")["shardId-000000000000"]) == before + 5


def test_a_consumer_that_was_not_closed_saves_what_was_acked_and_releases_its_leases(kinesis, tmp_path):
    _, err = run(
        kinesis,
        tmp_path,
        """
block = efo.sync.open_consumer("orders", **dict(options, application="unclosed"))
consumer = block.__enter__()
consumer.ack(next(consumer))
""",
    )
    assert "a consumer is still open at the end of the process: what was acked is saved" in err
    leases, _ = run(
        kinesis,
        tmp_path,
        """
import trio
async def main():
    async with efo.open_lease_store("efo-leases.sqlite", "unclosed", "orders") as store:
        for lease in await store.list():
            print(lease.owner, lease.checkpoint.is_sentinel)
trio.run(main)
""",
    )
    assert leases == "None False\n"


def test_a_block_whose_generator_is_collected_in_any_thread_does_not_hang(kinesis, tmp_path):
    out, _ = run(
        kinesis,
        tmp_path,
        """
done = threading.Event()
def observe(event):  # called in efo's own thread
    if cycle and not done.is_set():
        cycle.clear()
        gc.collect()
        done.set()

cycle = []
block = efo.sync.open_consumer("orders", observer=observe, **dict(options, application="collected"))
consumer = block.__enter__()
cycle += [cycle, block]
del block
assert done.wait(30)
try:
    list(consumer)
except efo.errors.EfoError as error:
    print(error)
""",
    )
    assert "closed" in out


def test_a_daemon_thread_that_reads_does_not_hold_up_the_end(kinesis, tmp_path):
    _, err = run(
        kinesis,
        tmp_path,
        """
begun = threading.Event()
def handle(batch):
    begun.set()
    time.sleep(1)

threading.Thread(
    target=lambda: efo.sync.consume("orders", handle, **dict(options, application="daemon")), daemon=True
).start()
assert begun.wait(30)
""",
    )
    assert "a consumer is still open at the end of the process" in err


def test_all_threads_that_iterate_have_each_batch_once_and_end_when_it_is_closed(kinesis, tmp_path):
    kinesis.create_stream("many", shards=4)
    kinesis.put_many("many", [(f"key {number}", b"%d" % number) for number in range(400)])
    out, _ = run(
        kinesis,
        tmp_path,
        """
got, lock, all_got = [], threading.Lock(), threading.Event()
def read():
    for batch in consumer:
        with lock:
            got.extend(int(record.data) for record in batch)
            if len(got) >= 400:
                all_got.set()
        consumer.ack(batch)

threads = [threading.Thread(target=read) for _ in range(8)]
with efo.sync.open_consumer("many", **dict(options, application="threads")) as consumer:
    for thread in threads:
        thread.start()
    assert all_got.wait(30)
for thread in threads:
    thread.join(30)
    assert not thread.is_alive()
print(sorted(got) == list(range(400)))
""",
    )
    assert out == "True\n"


def test_a_second_thread_that_runs_a_consumer_is_refused(kinesis, tmp_path):
    out, _ = run(
        kinesis,
        tmp_path,
        """
begun = threading.Event()
handler = efo.sync.Handler(lambda batch: begun.set())
with efo.sync.open_consumer("orders", **dict(options, application="second")) as consumer:
    thread = threading.Thread(target=consumer.run, args=(handler,))
    thread.start()
    assert begun.wait(30)
    try:
        consumer.run(handler)
    except efo.errors.ConfigurationError as error:
        print(error)
    consumer.drain()
    thread.join()
""",
    )
    assert "this consumer is read already, by another run or an iteration" in out


def test_the_fake_of_tests_is_refused_in_a_forked_child(kinesis, tmp_path):
    out, _ = run(
        kinesis,
        tmp_path,
        """
from efo.testing import FakeKinesisThread
with FakeKinesisThread() as fake:
    child = os.fork()
    if child == 0:
        try:
            fake.create_stream("s")
        except RuntimeError as error:
            print(error, flush=True)
if child:
    print(os.waitpid(child, 0)[1])
""",
    )
    assert out == "this process was forked from that of the fake: call it there, or connect to its url\n0\n"


def test_a_fork_while_another_thread_waits_for_a_batch_is_refused_too(kinesis, tmp_path):
    kinesis.create_stream("empty", shards=1)
    out, _ = run(
        kinesis,
        tmp_path,
        """
with efo.sync.open_consumer("empty", **dict(options, application="waiting")) as consumer:
    thread = threading.Thread(target=lambda: [*consumer])
    thread.start()
    time.sleep(1)
    in_child(next, consumer)
    in_child(consumer.status)
thread.join(10)
print(thread.is_alive())
""",
    )
    assert out == FORKED * 2 + "False\n"
