"""`consume_in_processes`: several processes share the shards; a failure or a drain ends all of them."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

import efo
from efo.consumer import processes
from efo.consumer.processes import CANCEL_GRACE, _consume, _pickled, _run, _supervise, _unpickled, _Worker, usable_cores
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesisThread
from tests.arguments import arguments_of
from tests.paths import ROOT

STREAM = "orders"
RECORDS = 300


def test_the_arguments_are_those_of_consume_with_the_same_defaults():
    def defaults(*functions):
        own = (inspect.signature(function).parameters.items() for function in functions)
        return {name: argument.default for named in own for name, argument in named}

    of_one_process = {"worker_id", "until", "timeout", "rng"}
    assert arguments_of(efo.consume_in_processes) == arguments_of(efo.consume) - of_one_process | {"processes"}
    expected = defaults(efo.open_consumer, efo.consume) | {"processes": "auto"}
    assert defaults(efo.consume_in_processes).items() <= expected.items()


@pytest.mark.parametrize("name", ["regoin", "role"])
async def test_an_argument_that_does_not_exist_is_refused(name):
    wrong = {name: "eu-central-1"}
    with pytest.raises(TypeError, match=name):
        await efo.consume(STREAM, fail, application="app", **wrong)
    with pytest.raises(TypeError, match=name):
        await efo.consume_in_processes(STREAM, fail, application="app", **wrong)
    with pytest.raises(TypeError, match=name):
        await efo.consume_streams([STREAM], fail, application="app", **wrong)
    with pytest.raises(TypeError, match=name):
        efo.open_producer(STREAM, **wrong)


async def append(batch: efo.Batch, *, directory: Path) -> None:
    """Append the records of a batch to the file of this process."""
    with (directory / str(os.getpid())).open("a") as file:
        file.writelines(f"{record.data.decode()}\n" for record in batch)


async def fail(batch: efo.Batch) -> None:
    raise LookupError(batch.shard_id)


def read_back(directory: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().split() for path in directory.iterdir()}


@pytest.fixture
def server():
    with FakeKinesisThread() as fake:
        fake.create_stream(STREAM, shards=4)
        fake.put_many(STREAM, [(f"key-{n}", b"%d" % n) for n in range(RECORDS)])
        yield fake


@pytest.fixture
def consuming(server, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    return partial(
        efo.consume_in_processes,
        STREAM,
        application="billing",
        processes=2,
        leases=tmp_path / "leases.sqlite",
        endpoint_url=server.url,
        ca_file=server.ca_file,
    )


@pytest.mark.e2e
async def test_two_processes_share_the_shards_and_drain(consuming, server, tmp_path):
    (directory := tmp_path / "out").mkdir()
    async with trio.open_nursery() as nursery:
        workers = await nursery.start(partial(consuming, partial(append, directory=directory)))
        assert len(set(workers.pids)) == 2
        with trio.fail_after(120):
            put = RECORDS
            while len(read_back(directory)) < 2:  # the first process may have read everything before the second began
                more = [(f"key-{n}", b"%d" % n) for n in range(put, put + 40)]
                await trio.to_thread.run_sync(server.put_many, STREAM, more)
                put += 40
                await trio.sleep(0.5)
            while sum(map(len, read_back(directory).values())) < put:  # noqa: ASYNC110 - other processes read
                await trio.sleep(0.05)
        workers.drain()
    read = read_back(directory)
    assert sorted(int(n) for numbers in read.values() for n in numbers) == list(range(put))
    assert {int(pid) for pid in read} == set(workers.pids)


@pytest.mark.e2e
async def test_the_exception_of_a_handler_ends_all_processes_and_is_raised(consuming):
    with pytest.raises(LookupError, match="shardId-") as raised:
        await consuming(fail)
    notes = getattr(raised.value, "__notes__", ())
    assert not [note for note in notes if "exit code" in note]  # each process tells once why it ended


@pytest.mark.e2e
async def test_a_killed_process_ends_all_with_its_signal(consuming, tmp_path):
    (directory := tmp_path / "out").mkdir()
    with pytest.raises(efo.errors.EfoError, match="ended with signal SIGKILL"), collapse_groups():  # noqa: PT012
        async with trio.open_nursery() as nursery:
            workers = await nursery.start(partial(consuming, partial(append, directory=directory)))
            os.kill(workers.pids[0], signal.SIGKILL)


class StuckWorker:
    """A process that does not end. `calls`: what was asked of it, and when."""

    def __init__(self):
        self.calls = []
        self.result = self

    async def wait(self):
        await trio.sleep_forever()

    def drain(self):
        self.calls.append(("drain", trio.current_time()))

    def kill(self):
        self.calls.append(("kill", trio.current_time()))

    def close(self):
        pass


async def test_a_process_that_does_not_drain_after_a_cancellation_is_killed(autojump_clock):
    worker, start = StuckWorker(), trio.current_time()
    with trio.move_on_after(5):
        await _supervise([worker])
    assert worker.calls == [("drain", start + 5), ("kill", start + 5 + CANCEL_GRACE)]


@pytest.mark.e2e
async def test_the_program_of_the_page_reads_with_two_processes_until_ctrl_c(server, tmp_path):
    [program] = re.findall("```py\n(.*?)```", (ROOT / "docs" / "consuming.md").read_text(), re.DOTALL)
    (tmp_path / "billing.py").write_text(program)
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": server.url,
        "AWS_CA_BUNDLE": str(server.ca_file),
    }
    process = await trio.lowlevel.open_process(
        [sys.executable, "billing.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    output = b""
    with trio.fail_after(120):
        while sum(map(int, re.findall(rb"(\d+) records of shardId-", output))) < RECORDS:
            output += await process.stdout.receive_some()
        process.send_signal(signal.SIGINT)
        await process.wait()
    assert process.returncode in (-signal.SIGINT, 130)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": 0}, 'processes=0: expected 1 or more, or "auto"'),
        ({"processes": "all"}, "processes='all'"),
        ({"leases": "memory:"}, "leases='memory:': expected a path or a URL that all processes can open"),
        ({"leases": None}, "leases=None"),
        ({"handler": lambda _batch: None}, "handler=<lambda> cannot be passed to another process: define it"),
        ({"observer": [].append, "stream": 5}, "stream=5"),
        ({"settings": {}}, "settings=<dict>: expected a ConsumerSettings"),
    ],
)
async def test_a_mistake_is_rejected_before_a_process_starts(options, message):
    arguments = {"stream": STREAM, "handler": fail, "application": "billing", **options}
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        await efo.consume_in_processes(**arguments)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        efo.errors.ServiceError("KMS", "no key", status=400),
        efo.errors.StreamResetError("reset", code=8),
    ],
)
def test_an_exception_keeps_its_class_text_and_attributes_between_processes(error):
    received = _unpickled(_pickled(error))
    assert (type(received), str(received), vars(received)) == (type(error), str(error), vars(error))


def test_an_exception_that_cannot_be_pickled_keeps_its_name_alone():
    class Local(Exception):  # noqa: N818
        pass

    received = _unpickled(_pickled(Local("bad")))
    assert type(received) is efo.errors.EfoError
    assert str(received) == "the process of a worker ended: Local"


# --- the parent, with processes that the tests are ---------------------------------------------------------


class Process:
    """Stands for a process that ends after so many seconds, maybe with an error."""

    def __init__(self, seconds, error=None):
        self.seconds, self.error = seconds, error
        self.calls = []
        self.pid = 77
        self.process = self.result = self

    async def wait(self):
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error

    def drain(self):
        self.calls.append("drain")

    def kill(self):
        self.calls.append("kill")

    def close(self):
        self.calls.append("close")


async def test_processes_that_end_by_themselves_end_it(autojump_clock):
    workers = [Process(3), Process(5)]
    await _supervise(workers)
    assert trio.current_time() == 5
    assert [worker.calls for worker in workers] == [["drain", "kill", "close"]] * 2


async def test_a_process_that_fails_drains_the_others_and_the_first_failure_is_raised(autojump_clock):
    workers = [Process(3, LookupError("first")), Process(5, ValueError("second")), Process(7)]
    with pytest.raises(LookupError, match="first") as raised:
        await _supervise(workers)
    assert raised.value.__notes__ == ["in another process: ValueError: second"]
    assert trio.current_time() == 7
    assert [worker.calls for worker in workers] == [["drain", "drain", "drain", "kill", "close"]] * 3


@pytest.fixture
def started(monkeypatch):
    """Return what each process is started with."""
    calls = []

    def start(consuming):
        calls.append(consuming)
        return Process(1)

    monkeypatch.setattr(_Worker, "start", start)
    return calls


async def test_each_process_gets_its_share_of_the_subscribe_budget_and_all_else_as_it_is(autojump_clock, started):
    settings = efo.ConsumerSettings(subscribes_per_second=6.0, max_leases=3)
    async with trio.open_nursery() as nursery:
        call = partial(efo.consume_in_processes, STREAM, fail, application="app", processes=3, settings=settings)
        workers = await nursery.start(partial(call, leases="file.sqlite", region="eu-west-1", key_concurrency=2))
        assert workers.pids == (77, 77, 77)
        workers.drain()
    assert len(started) == 3
    assert started[0].args == (STREAM, fail)
    given = started[0].keywords
    assert (given["settings"].subscribes_per_second, given["settings"].max_leases) == (2.0, 3)
    assert (given["leases"], given["region"], given["key_concurrency"]) == ("file.sqlite", "eu-west-1", 2)


async def test_by_default_there_is_a_process_for_each_core_and_one_key_at_a_time(autojump_clock, started, monkeypatch):
    monkeypatch.setattr(processes, "usable_cores", lambda: 4)
    await efo.consume_in_processes(STREAM, fail, application="app")
    assert len(started) == 4
    assert started[0].keywords["key_concurrency"] == 1
    assert started[0].keywords["settings"].subscribes_per_second == efo.ConsumerSettings().subscribes_per_second / 4


@pytest.mark.parametrize(("affinity", "cores", "usable"), [({0, 3, 4}, 8, 3), (None, 8, 8), (None, None, 1)])
def test_the_usable_cores_are_those_that_the_process_may_run_on(monkeypatch, affinity, cores, usable):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    if affinity is None:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: affinity, raising=False)
    assert usable_cores() == usable


@pytest.mark.parametrize(
    ("code", "message"),
    [(0, None), (3, "process 9 ended with exit code 3"), (-9, "process 9 ended with signal SIGKILL")],
)
def test_a_process_that_sends_no_error_has_ended_by_its_exit_code(code, message):
    receiving, sending = multiprocessing.Pipe(duplex=False)
    sending.close()
    error = _Worker(SimpleNamespace(exitcode=code, pid=9), None, receiving)._error()
    assert error is None if message is None else message in str(error)


def test_a_process_that_sent_an_error_has_ended_by_it():
    receiving, sending = multiprocessing.Pipe(duplex=False)
    sending.send_bytes(_pickled(LookupError("bad")))
    error = _Worker(SimpleNamespace(exitcode=1, pid=9), None, receiving)._error()
    assert type(error) is LookupError


# --- a process, in this one --------------------------------------------------------------------------------


class Draining:
    """A consumer that ends when it is drained."""

    def __init__(self):
        self.drained = trio.Event()

    def drain(self):
        self.drained.set()


async def test_a_process_drains_its_consumer_when_its_pipe_closes():
    receiving, sending = multiprocessing.Pipe(duplex=False)
    consumer = Draining()

    async def consuming(task_status):
        task_status.started(consumer)
        sending.close()
        await consumer.drained.wait()

    with trio.fail_after(60):
        await _consume(consuming, receiving)


async def test_a_process_whose_pipe_closes_while_its_consumer_opens_gives_it_up():
    receiving, sending = multiprocessing.Pipe(duplex=False)

    async def consuming(task_status):
        sending.close()
        await trio.sleep_forever()

    with trio.fail_after(60):
        await _consume(consuming, receiving)


async def test_a_process_ends_with_its_consumer_though_nobody_drains_it():
    receiving, sending = multiprocessing.Pipe(duplex=False)

    async def consuming(task_status):
        task_status.started(Draining())

    with trio.fail_after(60):
        await _consume(consuming, receiving)
    sending.close()


def test_a_process_sends_the_error_that_ends_it_and_leaves_ctrl_c_to_its_parent():
    drained, _control = multiprocessing.Pipe(duplex=False)
    result, failed = multiprocessing.Pipe(duplex=False)
    before = signal.getsignal(signal.SIGINT)

    async def consuming(task_status):
        raise LookupError("bad")

    try:
        with pytest.raises(SystemExit) as raised:
            _run(consuming, drained, failed)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised.value.code == 1
    assert str(_unpickled(result.recv_bytes())) == "bad"
