"""Child processes: what they write, how they fail, how they end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio

from efo_service.multilang.child import MAX_LINE, ChildError, open_child, passing_on
from efo_service.multilang.messages import CheckpointRequest, StatusMessage

SHARD = "shardId-000000000000"
STATUS = """print('{"action": "status", "responseFor": "initialize"}', flush=True)"""


def program(code):
    return [sys.executable, "-c", f"import os, signal, sys, time\n{code}"]


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch):
    monkeypatch.setattr("efo_service.multilang.child.EXIT_SECONDS", 1.0)
    monkeypatch.setattr("efo_service.multilang.child.KILL_SECONDS", 0.2)
    monkeypatch.setattr("efo_service.multilang.child.PIPE_SECONDS", 0.5)


@pytest.fixture
def lines():
    return []


def is_running(pid):
    """Return whether a process runs, and is no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def opened(code, lines):
    return open_child(program(code), SHARD, lines.extend)


async def test_messages_are_read_between_lines_of_noise_which_are_passed_on(lines):
    code = f"""
print('hello')
sys.stdout.write('half a line')
{STATUS}
sys.stdout.write('\\n' + '{{"action": "status", "responseFor": "x"}}' + '\\n')
print('{{"action": "checkpoint", "sequenceNumber": "7"}}')
sys.stderr.write('an error\\nand more')
"""
    async with opened(code, lines) as child:
        assert await child.receive() == StatusMessage("x")
        assert await child.receive() == CheckpointRequest("7", None)
        with pytest.raises(ChildError, match="ended with exit status 0"):
            await child.receive()
    assert sorted(lines) == sorted(
        [b"hello", b'half a line{"action": "status", "responseFor": "initialize"}', b"an error", b"and more"]
    )


async def test_a_message_without_an_end_counts_at_the_end(lines):
    async with opened("""sys.stdout.write('{"action": "status", "responseFor": "x"}')""", lines) as child:
        assert await child.receive() == StatusMessage("x")


async def test_endless_lines_are_passed_on_in_pieces(lines):
    code = f"sys.stdout.write('x' * {5 * MAX_LINE}); sys.stderr.write('y' * {5 * MAX_LINE}); print(); {STATUS}"
    async with opened(code, lines) as child:
        assert await child.receive() == StatusMessage("initialize")
    text = b"".join(lines)
    assert (text.count(b"x"), text.count(b"y")) == (5 * MAX_LINE, 5 * MAX_LINE)
    assert max(map(len, lines)) <= 2 * MAX_LINE


async def test_a_child_that_writes_before_it_reads_does_not_block(lines):
    code = f"sys.stdout.write('noise\\n' * 100_000); print(len(sys.stdin.readline()), file=sys.stderr); {STATUS}"
    async with opened(code, lines) as child:
        await child.send(b"z" * 2_000_000 + b"\n")
        assert await child.receive() == StatusMessage("initialize")
    assert lines.count(b"noise") == 100_000
    assert b"2000001" in lines


async def test_a_child_that_closes_its_stdin_fails(lines):
    async with opened(f"os.close(0); {STATUS}; time.sleep(60)", lines) as child:
        await child.receive()
        with pytest.raises(ChildError, match=f"{SHARD}: its child process {child.pid} closed its stdin"):
            await child.send(b"x\n")


async def test_a_child_that_closes_its_stdout_fails(lines):
    async with opened("os.close(1); time.sleep(60)", lines) as child:
        with pytest.raises(ChildError, match="closed its stdout"):
            await child.receive()
        assert child.has_ended


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (40, "signal 40")])
async def test_the_signal_that_ended_a_child_is_named(lines, number, name):
    async with opened(f"os.kill(os.getpid(), {number})", lines) as child:
        with pytest.raises(ChildError, match=f"was ended by {name}"):
            await child.receive()


async def test_the_end_of_a_child_is_noticed_while_nothing_is_asked(lines):
    ended = trio.Event()
    async with opened("sys.stdin.readline()", lines) as child:
        child.ended = ended.set
        await child.send(b"go\n")
        await ended.wait()
        assert child.has_ended


async def test_the_end_of_a_child_is_noticed_though_what_it_left_behind_keeps_its_pipes_open(lines):
    code = f"""
if os.fork() == 0:
    os.setsid()
    signal.alarm(20)
    while True:
        time.sleep(1)
{STATUS}
print(os.getpid(), file=sys.stderr, flush=True)
os._exit(3)
"""
    ended = trio.Event()
    with trio.fail_after(10):
        async with opened(code, lines) as child:
            child.ended = ended.set
            assert await child.receive() == StatusMessage("initialize")
            await ended.wait()
            with pytest.raises(ChildError, match="ended with exit status 3"):
                await child.receive()
    assert lines == [str(child.pid).encode()]


async def test_the_end_of_its_stdin_ends_a_child(lines):
    async with opened("sys.stdin.read(); print('bye', file=sys.stderr)", lines):
        pass
    assert lines == [b"bye"]


async def test_a_child_that_does_not_end_is_terminated_with_what_it_started(lines):
    code = f"""
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if grandchild := os.fork():  # one process writes messages: those of two could be one line
    print(grandchild, file=sys.stderr, flush=True)
    {STATUS}
time.sleep(60)
"""
    async with opened(code, lines) as child:
        await child.receive()
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    [grandchild] = [int(line) for line in lines if line.isdigit()]
    for _ in range(1000):
        if not is_running(grandchild):
            break
        await trio.sleep(0.01)
    else:
        raise AssertionError("the grandchild runs")


async def test_a_cancellation_ends_the_child(lines):
    with trio.CancelScope() as scope:
        async with opened(f"{STATUS}; sys.stdin.read()", lines) as child:
            await child.receive()
            scope.cancel()
            await trio.sleep_forever()
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_a_half_written_message_is_known(lines):
    async with opened("time.sleep(60)", lines) as child:
        with trio.move_on_after(0.2):
            await child.send(b"z" * 10_000_000)
        assert not child.is_intact


async def test_a_cancelled_message_of_which_nothing_was_written_leaves_the_child_intact(lines):
    async with opened("time.sleep(60)", lines) as child:
        with trio.CancelScope() as scope:
            scope.cancel()
            await child.send(b"z")
        assert child.is_intact


async def test_an_executable_that_is_missing_is_named():
    with pytest.raises(ChildError, match=f"{SHARD}: executableName: cannot start 'no-such-program'.*No such file"):
        async with open_child(["no-such-program", "x"], SHARD):
            pass


def test_lines_have_the_shards_id():
    written = []
    passing_on("shard-1", written.append)([b"one", b"two\r", b""])
    assert written == [b"[shard-1] one\n[shard-1] two\n[shard-1] \n"]
