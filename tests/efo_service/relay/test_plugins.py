"""Sinks of other packages: how they are found and opened. The example of a package is in examples/sink-sqlite."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
import structlog
import trio
import trio.lowlevel

from efo.errors import ConfigurationError
from efo.model import Checkpoint, checkpoint_of
from efo_service.config.loading import load, load_all
from efo_service.factories.sinks import open_sink
from efo_service.relay.conformance import SHARD, STREAM, commit, records as some
from efo_service.relay.errors import SinkDefectError, SinkError, SinkFullError
from efo_service.relay.plugins import BLOCKS_AFTER, check_sink, installed_sinks, load_sink, open_checked
from efo_service.relay.sink import Part, identify
from tests.paths import ROOT

EXAMPLE = ROOT / "examples/sink-sqlite"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make entry points, as an installed package has them."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    site = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(str(site))

    def install(package: str, *points: str) -> None:
        directory = site / f"{package}-1.0.dist-info"
        directory.mkdir(parents=True)
        directory.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        directory.joinpath("entry_points.txt").write_text("\n".join(["[efo.sinks]", *points, ""]))

    return install


@pytest.fixture
def load_text(tmp_path):
    def load_text(text: str):
        path = tmp_path / "efo.toml"
        path.write_text(text)
        return load(path)

    return load_text


def test_the_sinks_of_efo_are_always_installed():
    assert installed_sinks()[:3] == ("log", "jsonl", "kafka")
    for name in ("log", "jsonl", "kafka"):
        check_sink(name)


def test_an_unknown_sink_is_refused_with_the_installed_ones(install, load_text):
    install("efo-sink-sqlite", "sqlite = efo_sink_sqlite:open_sqlite")
    with pytest.raises(ConfigurationError) as caught:
        load_text('[kinesis]\nstream = "orders"\n[relay]\nsink = "sqlight"')
    assert ":4: [relay] sink: 'sqlight' is not an installed sink" in str(caught.value)
    assert str(caught.value).endswith("choose one of log, jsonl, kafka, sqlite")


def test_options_are_only_for_sinks_of_other_packages(load_text):
    with pytest.raises(ConfigurationError, match='sink = "log" has none, remove them'):
        load_text('[kinesis]\nstream = "orders"\n[relay.options]\nfile = "x"')


def test_a_credential_among_the_options_is_refused_in_the_file(install, load_text):
    install("efo-sink-sqlite", "sqlite = efo_sink_sqlite:open_sqlite")
    with pytest.raises(ConfigurationError, match="set EFO_RELAY__OPTIONS=") as caught:
        load_text('[kinesis]\nstream = "a"\n[relay]\nsink = "sqlite"\n[relay.options]\npassword = "hunter2"')
    assert "hunter2" not in str(caught.value)


def test_a_name_of_several_packages_is_refused(install):
    install("one", "same = efo_sink_sqlite:open_sqlite")
    install("other", "same = efo_sink_sqlite:Database")
    with pytest.raises(ConfigurationError, match="'same' is a sink of several packages: the package"):
        check_sink("same")


@pytest.mark.parametrize("point", ["broken = efo_sink_sqlite:nothing", "broken = no_such_module:open"])
def test_a_sink_that_cannot_be_loaded_names_its_package(install, point):
    install("efo-sink-broken", point)
    with pytest.raises(ConfigurationError, match="the sink 'broken' of the package efo-sink-broken cannot be loaded"):
        load_sink("broken")


async def test_a_sink_of_another_package_is_opened_with_its_options_and_keeps_positions(install, load_text, tmp_path):
    install("efo-sink-sqlite", "sqlite = efo_sink_sqlite:open_sqlite")
    settings = load_text(
        f'[kinesis]\nstream = "orders"\n[relay]\nsink = "sqlite"\ntopic = "t"\n[relay.options]\nfile = "{tmp_path}/f"'
    )
    assert settings.relay.owns_positions
    async with (
        open_sink(settings) as destination,
        destination.sink.open("orders", "shardId-000000000000", Checkpoint.TRIM_HORIZON) as shard,
    ):
        await commit(shard, 3)
        assert shard.position is not None
    connection = sqlite3.connect(tmp_path / "f")
    assert connection.execute("SELECT count(*), min(topic) FROM record").fetchone() == (3, "t")
    connection.close()


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_function_that_returns_no_context_manager_is_reported_with_its_package(
    install, load_text, tmp_path, monkeypatch, kind
):
    tmp_path.joinpath("efo_sink_bare.py").write_text(f"{kind} open_bare(options, context): return 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "efo_sink_bare", raising=False)
    install("efo-sink-bare", "bare = efo_sink_bare:open_bare")
    settings = load_text('[kinesis]\nstream = "orders"\n[relay]\nsink = "bare"')
    found = "the sink 'bare' of the package efo-sink-bare returned no async context manager"
    with pytest.raises(ConfigurationError, match=found):
        async with open_sink(settings):
            pass


def test_two_streams_cannot_have_the_same_sink_topic_and_options(install, tmp_path):
    install("efo-sink-sqlite", "sqlite = efo_sink_sqlite:open_sqlite")
    path = tmp_path / "efo.toml"
    text = '[relay]\nsink = "sqlite"\n[relay.options]\nfile = "f"\n[streams.a]\n[streams.b]\n'
    path.write_text(text)
    assert set(load_all(path).streams) == {"a", "b"}
    path.write_text(text + '[streams.b.relay]\ntopic = "a"')
    with pytest.raises(ConfigurationError, match="the topic 'a' of the sink 'sqlite' with the same options"):
        load_all(path)


@pytest.mark.e2e
def test_the_tests_of_the_example_pass():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "pythonpath=.",
        "-o",
        "trio_mode=true",
    ]
    done = subprocess.run(
        [*command, "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(EXAMPLE), str(EXAMPLE / "tests")],
        cwd=EXAMPLE,
        env={"PYTHONPATH": f"{EXAMPLE}:{ROOT}:{ROOT / 'service'}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


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
    assert "ValueError at test_plugins.py:" in str(caught.value)


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
    monkeypatch.setattr("efo_service.relay.plugins.time.perf_counter", lambda: now[0])

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
