"""The end of the process with something open, and the processes that share the host."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from efo.testing.faults.kinds import NoResponse
from efo.testing.faults.script import ALWAYS, When
from proofs.attacks.programs import PRELUDE, STREAM, World, world
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("neighbours", seconds=240)

# --- the end of the process -----------------------------------------------------------------------------------------


def _unclosed(here: World, program: str) -> tuple[bool, str]:
    ended = here.run(program)
    return "is still open at the end of the process" in ended.err, f"exit {ended.status}, {ended.seconds:.0f} s"


@cases.case("the buffer is sent, and it is reported", name="exit: a producer that was not closed")
def _() -> Outcome:
    with world() as here:
        reported, did = _unclosed(
            here,
            """
producer = (block := efo.sync.open_producer("orders", settings=efo.ProducerSettings(linger_seconds=60))).__enter__()
producer.put_many([efo.ProducerRecord(b"%d" % number, "key") for number in range(1000)])
""",
        )
        return Outcome(
            f"reported {reported}, {len(here.stored)} of 1000 stored, {did}", reported and len(here.stored) == 1000
        )


@cases.case("it ends within 15 s, and what is lost is reported", name="exit: a producer whose endpoint is gone")
def _() -> Outcome:
    with world() as here:
        here.kinesis.inject(NoResponse(), When(operation="PutRecords", times=ALWAYS))
        ended = here.run(
            """
producer = (block := efo.sync.open_producer("orders")).__enter__()
producer.put_many([efo.ProducerRecord(b"%d" % number, "key") for number in range(1000)])
"""
        )
        reported = "1000 records in its buffer is still open" in ended.err and "lost" in ended.err
        return Outcome(
            f"exit {ended.status} after {ended.seconds:.0f} s, reported {reported}", ended.status == 0 and reported
        )


@cases.case("what was acked is saved, the leases are free, it is reported", name="exit: a consumer that was not closed")
def _() -> Outcome:
    with world() as here:
        here.put(10)
        reported, did = _unclosed(
            here,
            """
consumer = (block := efo.sync.open_consumer("orders", **options)).__enter__()
consumer.ack(next(consumer))
""",
        )
        owners = here.run(
            """
async def main():
    async with efo.open_lease_store("efo-leases.sqlite", "app", "orders") as store:
        for lease in await store.list():
            print(lease.owner, lease.checkpoint.is_sentinel)
trio.run(main)
"""
        ).out.split()
        right = reported and owners[::2] == ["None"] * 2 and "False" in owners
        return Outcome(f"reported {reported}, {did}", right)


@cases.case("it ends, and is reported", name="exit: a daemon thread reads, another waits in put")
def _() -> Outcome:
    with world() as here:
        here.put(10)
        reported, did = _unclosed(
            here,
            """
begun = threading.Event()
def handle(batch):
    begun.set()
    time.sleep(0.5)
threading.Thread(target=lambda: efo.sync.consume("orders", handle, **options), daemon=True).start()
begun.wait(30)
""",
        )
        return Outcome(f"reported {reported}, {did}", reported and did.startswith("exit 0"))


@cases.case("SIGTERM and SIGINT end it, or it refuses the pipe at once", name="efo fake --replay PIPE")
def _() -> Outcome:
    with world() as here:
        os.mkfifo(here.home / "pipe")
        seen = []
        for number in (signal.SIGTERM, signal.SIGINT):
            process = here.start("-P", "-m", "efo_service", "fake", "--replay", "pipe", "--port", "0")
            time.sleep(2.5)
            process.send_signal(number)
            seen.append(here.wait(process, 10).status)
        return Outcome(f"exit {seen}", None not in seen)


# --- who shares the host ---------------------------------------------------------------------------------------------


@cases.case("no core file is written, not even with `ulimit -c unlimited`", name="a crash of efo run")
def _() -> Outcome:
    with world() as here:
        token = f"{CANARY}-token-of-the-service"
        environment = {**here.environment, "EFO_SERVICE__TOKEN": token, "EFO_SERVICE__PORT": "0"}
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # its children inherit it
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "efo_service.cli", "run"],
            cwd=here.home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            process.stdout.readline()
            limits = Path(f"/proc/{process.pid}/limits").read_text()
            process.send_signal(signal.SIGSEGV)
            process.wait(20)
        soft = next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()[4]
        files = [path.name for path in here.home.iterdir() if path.name.startswith("core")]
        return Outcome(f"limit {soft}, files {files}", soft == "0" and not files)


@cases.case("SIGTERM ends it within its drain", name="a reader of stdout that has stopped")
def _() -> Outcome:
    with world() as here:
        here.kinesis.put_many(STREAM, [("key", os.urandom(100_000)) for _ in range(20)])
        process = here.start(
            "-P", "-m", "efo_service.cli", "run",
            EFO_RELAY__SINK="jsonl", EFO_RELAY__JSONL_FILE="-", EFO_SERVICE__PORT="0", EFO_SERVICE__DRAIN_SECONDS="3",
        )  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "shard_started" in line:
                break
        time.sleep(3)  # the pipe is full
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except Exception:  # noqa: BLE001 - it hangs
            process.kill()
            return Outcome("it hangs", is_right=False)
        return Outcome(f"exit {process.returncode}", process.returncode >= 0)


@cases.case("it waits until the store is free, and goes on", name="the lease file is locked by another process")
def _() -> Outcome:
    with world() as here:
        here.put(50)
        ended = here.run(
            """
import sqlite3
got = []
with efo.sync.open_consumer("orders", settings=efo.ConsumerSettings(), **options) as consumer:
    got += next(consumer).records
    other = sqlite3.connect("efo-leases.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with efo.sync.open_producer("orders") as producer:
        producer.put_many([efo.ProducerRecord(b"later", f"key {number}") for number in range(20)])
    time.sleep(4)
    other.execute("ROLLBACK")
    while sum(record.data == b"later" for record in got) < 20:
        batch = next(consumer)
        got += batch.records
        consumer.ack(batch)
print(len(got))
"""
        )
        return Outcome(f"{ended.out.strip()} of 70 records, exit {ended.status}", ended.out == "70\n")


@cases.case(
    "the directory of another user is not used", name="the directory of worker ids is another user's, or a link"
)
def _() -> Outcome:
    with world() as here:
        place = here.home / "tmp"
        place.mkdir()
        trap = here.home / "trap"
        trap.mkdir()
        os.chown(trap, 65534, 65534)
        (place / f"efo-{os.getuid()}").symlink_to(trap)
        ended = here.run(
            f"""
os.environ["TMPDIR"] = {str(place)!r}
import tempfile; tempfile.tempdir = None
with efo.sync.open_consumer("orders", application="app") as consumer:
    print(bool(consumer.worker_id))
"""
        )
        touched = list(trap.iterdir())
        return Outcome(f"exit {ended.status}, {len(touched)} files there", ended.out == "True\n" and not touched)


@cases.case("the others end in order, and the parent raises", name="consume_in_processes: one process is killed")
def _() -> Outcome:
    with world(shards=4) as here:
        here.put(100)
        here.home.joinpath("app.py").write_text(
            PRELUDE
            + """
async def handle(batch):
    pass

async def main():
    async with trio.open_nursery() as nursery:
        workers = await nursery.start(lambda *, task_status: efo.consume_in_processes(
            "orders", handle, application="app", processes=2, task_status=task_status))
        await trio.sleep(3)
        os.kill(workers.pids[0], signal.SIGKILL)

if __name__ == "__main__":
    try:
        trio.run(main)
    except BaseException as error:
        print(type(error).__name__, flush=True)
        sys.exit(3)
"""
        )
        ended = here.wait(here.start("app.py"), 40)
        return Outcome(f"exit {ended.status}", ended.status == 3)
