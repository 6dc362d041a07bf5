"""The processes and threads beside efo's own: forks, threads and Ctrl-C."""

from __future__ import annotations

import signal
import time
from typing import Final

from proofs.attacks.programs import PRELUDE, world
from proofs.situations.situation import Cases, Outcome

cases = Cases("neighbours", seconds=240)

_FORK: Final = """
def reported(function, *args):
    try:
        print(repr(function(*args))[:100], flush=True)
    except efo.errors.EfoError as error:
        print("refused" if "forked" in str(error) and "spawn" in str(error) else error, flush=True)

def in_child(function, *args):
    child = os.fork()
    if child == 0:
        reported(function, *args)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


def _forked(program: str, count: int, *, right: str = "", put: int = 3) -> Outcome:
    with world() as here:
        here.put(put)
        ended = here.run(_FORK + program)
        refused = ended.out.count("refused\n")
        did = f"{refused} of {count} refused, exit {ended.status}"
        return Outcome(did, ended.status == 0 and refused == count and right in ended.out)


@cases.case("each is refused with a sentence, the parent reads on", name="fork: a consumer of efo.sync")
def _() -> Outcome:
    return _forked(
        """
block = efo.sync.open_consumer("orders", **options)
with block as consumer:
    batch = next(consumer)
    for ask in (consumer.status, consumer.shards, consumer.counts, consumer.lineage, consumer.drain):
        in_child(ask)
    in_child(next, consumer)
    in_child(consumer.ack, batch)
    in_child(consumer.pause, batch.shard_id)
    in_child(consumer.run, efo.sync.Handler(print))
    in_child(block.__exit__, None, None, None)
    consumer.ack(batch)
    print(consumer.status().worker_id)
""",
        10,
        right="worker",
    )


@cases.case("each is refused with a sentence, the parent's record is stored", name="fork: a producer of efo.sync")
def _() -> Outcome:
    return _forked(
        """
block = efo.sync.open_producer("orders")
with block as producer:
    delivery = producer.put(b"of the parent", "key")
    in_child(producer.put, b"of the child", "key")
    in_child(producer.put_many, [])
    in_child(producer.flush)
    in_child(block.__exit__, None, None, None)
print(delivery.result().shard_id)
""",
        4,
        right="shardId-",
    )


@cases.case("each is refused with a sentence, the parent goes on", name="fork: efo.aio")
def _() -> Outcome:
    return _forked(
        """
async def main():
    async with efo.aio.open_consumer("orders", **options) as consumer, efo.aio.open_producer("orders") as producer:
        batch = await anext(consumer)

        def fresh(make):
            async def ask():
                await make()
            asyncio._set_running_loop(None)
            asyncio.run(ask())

        for make in (lambda: anext(consumer), lambda: producer.put(b"of the child", "key"), producer.flush):
            in_child(fresh, make)
        in_child(consumer.status)
        consumer.ack(batch)
        print((await (await producer.put(b"of the parent", "key"))).shard_id)

asyncio.run(main())
""",
        4,
        right="shardId-",
    )


@cases.case(
    "refused with a sentence in each task; a consumer of the task's own works", name="fork: a pool of processes"
)
def _() -> Outcome:
    return _forked(
        """
def task(number):
    reported(producer.put, b"of the task", "key")
    with efo.sync.open_producer("orders") as mine:
        return mine.put(b"of a task", "key").result().shard_id

with efo.sync.open_producer("orders") as producer:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(task, range(6), chunksize=1))
""",
        6,
        right="shardId-",
    )


@cases.case("each worker is refused, and ends", name="fork: a server that loads the application before it forks")
def _() -> Outcome:
    """As gunicorn with --preload: the block is never left in the parent before the workers end."""
    return _forked(
        """
block = efo.sync.open_consumer("orders", **options)
consumer = block.__enter__()
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        reported(next, consumer)
        sys.exit(0)  # the worker ends in order, with all its finalizers
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
block.__exit__(None, None, None)
""",
        4,
        right="[0, 0, 0, 0]",
    )


@cases.case("the parent goes on", name="fork: a handler forks, and its child returns")
def _() -> Outcome:
    with world() as here:
        here.put(3)
        ended = here.run(
            """
def handle(batch):
    child = os.fork()
    if child:
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        consumer.drain()

with efo.sync.open_consumer("orders", **options) as consumer:
    consumer.run(efo.sync.Handler(handle))
print("parent", flush=True)
"""
        )
        reported = "this process was forked" in ended.err
        return Outcome(
            f"exit {ended.status}, reported {reported}", ended.status == 0 and reported and "parent" in ended.out
        )


@cases.case("a new program of the same process has the leases at once", name="exec: a consumer is open")
def _() -> Outcome:
    with world() as here:
        here.put(3)
        again = PRELUDE + "\nwith efo.sync.open_consumer('orders', application='app') as c: print(len(next(c)) > 0)"
        here.home.joinpath("again.py").write_text(again)
        ended = here.run(
            """
block = efo.sync.open_consumer("orders", application="app")
consumer = block.__enter__()
next(consumer)
os.execv(sys.executable, [sys.executable, "again.py"])
"""
        )
        return Outcome(f"exit {ended.status}, {ended.seconds:.0f} s", ended.status == 0 and "True" in ended.out)


# --- threads ------------------------------------------------------------------------------------------------------


@cases.case("all threads end, each record is delivered once", name="threads: eight iterate over one consumer")
def _() -> Outcome:
    with world(shards=4) as here:
        here.put(2000)
        ended = here.run(
            """
got, lock, all_got = [], threading.Lock(), threading.Event()
def read():
    for batch in consumer:
        with lock:
            got.extend(int(record.data) for record in batch)
            if len(got) >= 2000:
                all_got.set()
        consumer.ack(batch)

threads = [threading.Thread(target=read) for _ in range(8)]
with efo.sync.open_consumer("orders", **options) as consumer:
    for thread in threads:
        thread.start()
    all_got.wait(30)
for thread in threads:
    thread.join(10)
print(sorted(got) == list(range(2000)), sum(thread.is_alive() for thread in threads))
"""
        )
        return Outcome(ended.out.strip(), ended.out == "True 0\n")


@cases.case("all end with an error or their results", name="threads: they put while the producer is closed")
def _() -> Outcome:
    with world() as here:
        ended = here.run(
            """
ends, stored = [], []
def put(number):
    try:
        while True:
            stored.append(producer.put(b"x" * 1000, f"key {number}"))
    except efo.errors.EfoError as error:
        ends.append(type(error).__name__)

threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
with efo.sync.open_producer("orders") as producer:
    for thread in threads:
        thread.start()
    time.sleep(1)
for thread in threads:
    thread.join(20)
print(len(ends), sum(thread.is_alive() for thread in threads), all(each.is_done for each in stored))
"""
        )
        return Outcome(f"{ended.out.strip()}, exit {ended.status}", ended.out == "8 0 True\n")


# --- Ctrl-C --------------------------------------------------------------------------------------------------------

_INTERRUPTS: Final = 1000


def _interrupted(program: str, records: int = 4000) -> Outcome:
    """Run a program that interrupts itself a thousand times, and compare what it read and what was acked."""
    with world(shards=4) as here:
        here.put(records)
        ended = here.run(program.replace("RECORDS", str(records)).replace("COUNT", str(_INTERRUPTS)), 150)
        words = ended.out.split()
        right = ended.status == 0 and words[:1] == ["once"] and int(words[1]) >= _INTERRUPTS
        return Outcome(f"{ended.out.strip()}, exit {ended.status}", right)


@cases.case("no hang, each record once and in the order of its key", name="Ctrl-C a thousand times: efo.sync")
def _() -> Outcome:
    return _interrupted(
        """
import random
rng = random.Random(7)
got, count = [], 0
def interrupt():
    while not over.is_set():
        time.sleep(rng.random() * 0.01)
        os.kill(os.getpid(), signal.SIGINT)

over = threading.Event()
with efo.sync.open_consumer("orders", **options) as consumer:
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    while count < COUNT or len(got) < RECORDS:
        batch = None
        try:
            for batch in consumer:  # as the documentation says: after `next`, Ctrl-C may come before the assignment
                break
        except KeyboardInterrupt:
            count += 1
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            if batch is not None:
                got += [int(record.data) for record in batch]
                consumer.ack(batch)
        finally:
            while True:
                try:
                    signal.pthread_sigmask(signal.SIG_SETMASK, held)
                    break
                except KeyboardInterrupt:
                    count += 1
        if count >= COUNT:
            over.set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("once" if sorted(got) == list(range(RECORDS)) else f"{len(got)} records, {len(set(got))} different", count)
"""
    )


@cases.case("no hang, each record once", name="Ctrl-C a thousand times: efo.aio")
def _() -> Outcome:
    return _interrupted(
        """
import random
rng = random.Random(7)
async def main():
    got, count = [], 0
    loop = asyncio.get_running_loop()

    async def read():
        async for batch in consumer:
            got.extend(int(record.data) for record in batch)
            consumer.ack(batch)

    async with efo.aio.open_consumer("orders", **options) as consumer:
        while count < COUNT or len(got) < RECORDS:
            task = loop.create_task(read())
            loop.add_signal_handler(signal.SIGINT, task.cancel)
            await asyncio.sleep(rng.random() * 0.01)
            os.kill(os.getpid(), signal.SIGINT)
            count += 1
            await asyncio.wait([task])
    print("once" if sorted(got) == list(range(RECORDS)) else f"{len(got)} records, {len(set(got))} different", count)

asyncio.run(main())
"""
    )


@cases.case("each ends at once, and no record is lost", name="Ctrl-C ends a program of efo.aio, again and again")
def _() -> Outcome:
    with world() as here:
        here.put(500)
        got: set[int] = set()
        hung, rounds = 0, 12
        for number in range(rounds):
            process = here.start(
                "-c",
                PRELUDE
                + """
async def main():
    async with efo.aio.open_consumer("orders", **options) as consumer:
        print("open", flush=True)
        async for batch in consumer:
            print(*[int(record.data) for record in batch], flush=True)
            consumer.ack(batch)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
""",
            )
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.05 * number)
            process.send_signal(signal.SIGINT)
            ended = here.wait(process, 20)
            hung += ended.status is None
            got |= {int(word) for word in ended.out.split() if word.isdigit()}
        return Outcome(f"{len(got)} of 500 records in {rounds} rounds, {hung} hung", len(got) == 500 and not hung)
