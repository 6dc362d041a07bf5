"""Sinks of packages that raise, return garbage, lie about their position, or hold up the event loop."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import structlog
import trio
import trio.lowlevel

from efo.model import Checkpoint, checkpoint_of
from efo_service.relay.conformance import SHARD, STREAM, records as some
from efo_service.relay.errors import SinkDefectError, SinkError, SinkFullError
from efo_service.relay.plugin_sink import BLOCKS_AFTER, open_checked
from efo_service.relay.sink import Part, identify

SECRET = "secret-of-the-package"


class Package:
    """A sink that does as it is asked. `does`: functions by the names of methods."""

    def __init__(self, **does) -> None:
        self._does = does
        self.written = []
        self.is_closed = False

    @asynccontextmanager
    async def opening(self):
        self._do("enter")
        yield self
        self._do("leave")

    def open(self, _stream, _shard_id, _checkpoint):
        return self._open()

    @asynccontextmanager
    async def _open(self):
        self._do("open")
        yield self
        self.is_closed = True

    def _do(self, name, default=None, *args):
        return self._does[name](*args) if name in self._does else default

    @property
    def position(self):
        return self._do("position")

    @property
    def refusal(self):
        self._do("refusal")
        return self._does.get("refusal_method", lambda record: self._do("reason", None, record))

    def prepare(self, records):
        self._do("prepare")
        found = Part(tuple(records), self._do("size", len(records)))
        return self._do("part", found)

    async def commit(self, parts):
        await trio.lowlevel.checkpoint()
        self._do("commit")
        self.written += [record for part in parts for record in part.content]


@asynccontextmanager
async def shard_of(package):
    async with open_checked(package.opening(), "evil", STREAM) as sink, sink.open(STREAM, SHARD) as shard:
        yield shard


async def use(package):
    """Call everything that the relay calls."""
    async with shard_of(package) as shard:
        found = some(3)
        if (refusal := shard.refusal) is not None:
            for record in found:
                refusal(record)
        part = shard.prepare(found)
        _ = shard.position
        await shard.commit([part])


def fail():
    raise ValueError(SECRET)


@pytest.mark.parametrize("method", ["enter", "leave", "open", "position", "refusal", "reason", "prepare", "commit"])
async def test_an_exception_of_any_method_is_a_defect_of_the_sink_without_its_text(method):
    package = Package(**{method: lambda *_: fail()})
    with pytest.raises(SinkDefectError) as caught:
        await use(package)
    assert SECRET not in str(caught.value)
    assert "ValueError at test_plugin_sink.py:" in str(caught.value)


async def test_an_error_of_efo_passes_and_the_shard_is_closed():
    def full():
        raise SinkFullError("no space")

    package = Package(commit=full)
    with pytest.raises(SinkFullError, match="no space"):
        await use(package)
    assert package.is_closed


@pytest.mark.parametrize(
    ("method", "garbage"),
    [
        *(("position", value) for value in ("7", 7, b"7", object(), {}, True)),
        *(("position", value) for value in (Checkpoint.LATEST, Checkpoint.SHARD_END, Checkpoint.TRIM_HORIZON)),
        *(("prepare", part) for part in (None, b"7", [], SECRET)),
        *(("prepare", Part(b"", size)) for size in (None, "7", -1, 1.5, SECRET)),
        *(("reason", value) for value in (b"no", 7, True, object())),
        *(("refusal", value) for value in (b"no", 7, True, object())),
    ],
)
async def test_garbage_is_refused_with_the_name_of_the_method(method, garbage):
    does = {"position": "position", "prepare": "part", "reason": "reason", "refusal": "refusal_method"}
    package = Package(**{does[method]: garbage if method == "refusal" else lambda *_: garbage})
    name = "refusal" if method == "reason" else method
    with pytest.raises(SinkDefectError, match=f"{SHARD}: {name} of its sink is ") as caught:
        await use(package)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("after", [None, Checkpoint("1"), checkpoint_of(some(2)[-1])])
async def test_a_position_that_does_not_follow_a_commit_is_refused(after):
    """What the commit was said to make durable would be acked, and lost."""
    positions = iter([Checkpoint("1"), Checkpoint("1"), after, after])
    with pytest.raises(SinkDefectError, match="which was committed"):
        await use(Package(position=lambda: next(positions)))


async def test_a_sink_that_keeps_positions_and_one_that_keeps_none_pass():
    await use(Package())
    package = Package()
    package._does["position"] = lambda: checkpoint_of(package.written[-1]) if package.written else None
    await use(package)


async def test_a_sink_that_holds_up_the_loop_is_reported_once_a_minute(autojump_clock, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("efo_service.relay.plugin_sink.time.perf_counter", lambda: now[0])

    def block():
        now[0] += 2 * BLOCKS_AFTER

    package = Package(commit=block)
    with structlog.testing.capture_logs() as lines:
        async with shard_of(package) as shard:
            parts = [shard.prepare(some(3))]
            for _ in range(3):
                await shard.commit(parts)
            await trio.sleep(100)
            await shard.commit(parts)
    assert [(line["event"], line["sink"], line["method"]) for line in lines] == [("sink_blocks", "evil", "commit")] * 2


async def test_a_commit_that_is_cancelled_ends_and_one_that_waits_is_no_block(autojump_clock):
    class Waiting(Package):
        async def commit(self, _parts):
            await trio.sleep_forever()

    with structlog.testing.capture_logs() as lines:
        async with shard_of(Waiting()) as shard:
            with trio.move_on_after(60) as scope:
                await shard.commit([shard.prepare(some(3))])
    assert scope.cancelled_caught
    assert lines == []


async def test_the_error_of_the_block_passes_unchanged():
    with pytest.raises(SinkError, match="of the block"):
        async with shard_of(Package()):
            raise SinkError("of the block")


async def test_a_sink_that_wants_to_know_its_stream_is_reported_before_it_is_opened() -> None:
    reported = []

    class Identified(Package):
        def identify(self, created_at):
            reported.append(created_at)
            self._do("identify")

    async with open_checked(Identified().opening(), "evil", STREAM) as sink:
        identify(sink, 7.0)
        async with sink.open(STREAM, SHARD):
            assert reported == [7.0]
    with pytest.raises(SinkDefectError, match=f"^{SHARD}: its sink failed with ValueError") as caught:
        async with shard_of(Identified(identify=fail)):
            pytest.fail("it opened")
    assert SECRET not in str(caught.value)
