"""Streams of a process: each lives alone; changes, failures and the drain."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from pydantic import SecretStr
from structlog.testing import capture_logs

from efo.errors import AccessDeniedError, ConfigurationError, StreamRecreatedError
from efo_service.config.settings import Settings
from efo_service.config.streams import Configuration
from efo_service.streams.changes import find_changes
from efo_service.streams.reload import Reloading, watch_secrets
from efo_service.streams.report import StreamsReport
from efo_service.streams.supervisor import StreamSupervisor
from efo_service.web.health import Health
from efo_service.web.process_problems import ProcessProblems


class FakeRun:
    """A run that ends some virtual seconds after it is to drain, or fails after `fails_after`."""

    def __init__(self, world: World, name: str, settings: Settings) -> None:
        self.world, self.name, self.settings = world, name, settings
        self.is_stopping = False
        self.health = Health()
        self.is_retried = False
        self.reading = trio.Event()
        self.seconds: list[float | None] = []
        self._drained = trio.Event()

    def status(self) -> dict:
        return {"stream": self.settings.kinesis.stream, "shards": []}

    def drain(self, seconds: float | None = None) -> None:
        self.is_stopping = True
        self.seconds.append(seconds)
        self._drained.set()

    async def run(self) -> bool:
        self.world.note(f"{self.name} runs {self.settings.relay.commit_records}")
        if (error := self.world.failures.get(self.name)) is not None:
            await trio.sleep(self.world.fails_after)
            self.world.note(f"{self.name} fails")
            raise error
        await trio.sleep(self.world.reads_after)
        self.reading.set()
        await self._drained.wait()
        await trio.sleep(self.world.drains_for.get(self.name, 0))
        self.world.note(f"{self.name} ends")
        if self.name in self.world.fails_in_drain:
            raise AccessDeniedError("Denied", "commit")
        return self.name not in self.world.cut_short


class World:
    """What the fakes do. `events`: what happened, with the virtual time."""

    def __init__(self) -> None:
        self.started = trio.current_time()
        self.events: list[tuple[float, str]] = []
        self.runs: list[FakeRun] = []
        self.failures: dict[str, Exception] = {}
        self.fails_after = 0.0
        self.reads_after = 0.0
        self.drains_for: dict[str, float] = {}
        self.cut_short: set[str] = set()
        self.fails_in_drain: set[str] = set()

    def note(self, what: str) -> None:
        self.events.append((round(trio.current_time() - self.started, 1), what))

    def make(self, name: str, settings: Settings) -> FakeRun:
        run = FakeRun(self, name, settings)
        self.runs.append(run)
        return run

    def reported(self) -> list[str]:
        return [what for _, what in self.events]


def one(name: str, records: int = 10, **relay) -> Settings:
    return Settings(kinesis={"stream": name}, leases={"worker_id": "w"}, relay={"commit_records": records, **relay})


def streams(**settings: Settings) -> Configuration:
    return Configuration(settings, has_tables=True)


@pytest.fixture
async def world():
    return World()


async def change(supervisor: StreamSupervisor, **settings: Settings) -> None:
    supervisor.apply(find_changes(supervisor.configuration, streams(**settings)))
    await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
async def start(world, nursery):
    async def start(configuration: Configuration) -> StreamSupervisor:
        supervisor = StreamSupervisor(configuration, world.make)
        nursery.start_soon(supervisor.run)
        await trio.testing.wait_all_tasks_blocked()
        return supervisor

    return start


async def test_streams_are_added_changed_and_removed_and_the_others_not_touched(autojump_clock, world, start):
    supervisor = await start(streams(a=one("a"), b=one("b"), c=one("c")))
    (kept,) = [run for run in world.runs if run.name == "a"]
    await change(supervisor, a=one("a"), b=one("b", 20), d=one("d"))
    await trio.sleep(1)
    assert sorted(world.reported()[3:]) == ["b ends", "b runs 20", "c ends", "d runs 10"]
    assert (kept.is_stopping, len(world.runs)) == (False, 5)
    assert [stream.name for stream in supervisor.configured()] == ["a", "b", "d"]
    assert {tuple(run.seconds) for run in world.runs if run.is_stopping} == {(25.0,)}
    supervisor.drain()


async def test_a_stream_that_uses_what_another_still_drains_waits_for_it(autojump_clock, world, start):
    world.drains_for = {"old": 7}
    supervisor = await start(streams(old=one("s")))
    await change(supervisor, new=one("s"), other=one("o"))
    assert world.reported() == ["old runs 10", "other runs 10"]
    report = StreamsReport(supervisor)
    assert "new: it has not started yet" in report.obstacles()
    await trio.sleep(10)
    assert world.events[2:] == [(7.0, "old ends"), (7.0, "new runs 10")]
    supervisor.drain()


async def test_streams_may_exchange_what_they_use(autojump_clock, world, start):
    world.drains_for = {"a": 1, "b": 2}
    supervisor = await start(streams(a=one("a", topic="x"), b=one("b", topic="y")))
    await change(supervisor, a=one("a", topic="y"), b=one("b", topic="x"))
    await trio.sleep(10)
    assert sorted(world.reported()[2:4]) == ["a ends", "b ends"]
    assert sorted(world.reported()[4:]) == ["a runs 10", "b runs 10"]
    supervisor.drain()


async def test_a_removed_stream_that_is_added_again_while_it_drains_continues_with_the_new_settings(
    autojump_clock, world, start
):
    world.drains_for = {"a": 5}
    supervisor = await start(streams(a=one("a"), b=one("b")))
    await change(supervisor, b=one("b"))
    await change(supervisor, a=one("a", 30), b=one("b"))
    await trio.sleep(10)
    assert world.reported()[2:] == ["a ends", "a runs 30"]
    supervisor.drain()


async def test_a_failure_is_that_of_one_stream_and_is_retried_with_a_growing_delay(autojump_clock, world, start):
    world.failures = {"a": AccessDeniedError("Denied", "not you")}
    with capture_logs() as lines:
        supervisor = await start(streams(a=one("a"), b=one("b")))
        await trio.sleep(8)
        (obstacle,) = [text for text in StreamsReport(supervisor).problems() if text.startswith("a: ")]
        assert "it failed, and starts again within 8 s: " in obstacle
        assert "not you" in obstacle
        del world.failures["a"]
        await trio.sleep(10)
        supervisor.drain()
    times = [at for at, what in world.events if what == "a runs 10"]
    assert times == [0, 1, 3, 7, 15]
    failed = [line for line in lines if line["event"] == "stream_failed"]
    assert [line["restart_seconds"] for line in failed] == [1, 2, 4, 8]
    assert all(line["error_type"] == AccessDeniedError("Denied", "").error_type for line in failed)
    assert [what for what in world.reported() if what.startswith("b")] == ["b runs 10"]


async def test_a_stream_that_was_created_again_has_two_lines_and_growing_pauses(autojump_clock, world, start):
    world.failures = {"a": StreamRecreatedError("the stream 'a' was created again; reset its leases")}
    world.reads_after = 0.5
    with capture_logs() as lines:
        supervisor = await start(streams(a=one("a"), b=one("b")))
        await trio.sleep(20)
        assert [run.is_retried for run in world.runs if run.name == "a"] == [False, True, True, True, True]
        for after in (0.0, 10.9):  # between two tries, and during one that is not known to read yet
            await trio.sleep(after)
            (obstacle,) = [text for text in StreamsReport(supervisor).problems() if text.startswith("a: ")]
            assert "created again; reset its leases" in obstacle
            assert [found.stream for found in StreamsReport(supervisor).readiness() if not found.is_ready][:1] == ["a"]
        del world.failures["a"]
        await trio.sleep(60)
        assert not [text for text in StreamsReport(supervisor).problems() if "created again" in text]
        supervisor.drain()
    assert [at for at, what in world.events if what == "a runs 10"] == [0, 1, 3, 7, 15, 31]
    reported = [line for line in lines if line["log_level"] != "debug"]
    assert [(line["event"], line["log_level"]) for line in reported] == [
        ("stream_failed", "error"),
        ("stream_restored", "warning"),
    ]
    assert reported[0]["error_type"] == "stream_recreated"
    assert (reported[1]["seconds"], reported[1]["failures"]) == (31.5, 5)


async def test_another_failure_in_between_is_reported_and_begins_anew(autojump_clock, world, start):
    recreated = StreamRecreatedError("created again")
    world.failures = {"a": recreated}
    with capture_logs() as lines:
        supervisor = await start(streams(a=one("a"), b=one("b")))
        await trio.sleep(2)
        world.failures["a"] = AccessDeniedError("Denied", "not you")
        await trio.sleep(4)
        world.failures["a"] = recreated
        await trio.sleep(10)
        supervisor.drain()
    reported = [line["error_type"] for line in lines if line["log_level"] == "error"]
    assert reported == ["stream_recreated", AccessDeniedError.error_type, "stream_recreated"]


async def test_the_one_stream_of_a_process_ends_it(autojump_clock, world):
    world.failures = {"a": StreamRecreatedError("created again")}
    with pytest.RaisesGroup(StreamRecreatedError, flatten_subgroups=True, allow_unwrapped=True):
        await StreamSupervisor(Configuration.of(one("a")), world.make).run()
    assert world.reported() == ["a runs 10", "a fails"]


async def test_a_reload_starts_a_failed_stream_at_once(autojump_clock, world, start):
    world.failures = {"a": AccessDeniedError("Denied", "")}
    supervisor = await start(streams(a=one("a"), b=one("b")))
    await trio.sleep(3.5)  # the next restart is at 7
    del world.failures["a"]
    await change(supervisor, a=one("a"), b=one("b"))
    assert world.events[-1] == (3.5, "a runs 10")
    supervisor.drain()


async def test_a_reload_before_the_streams_run_is_not_lost(autojump_clock, world, nursery):
    supervisor = StreamSupervisor(streams(a=one("a"), b=one("b")), world.make)
    await change(supervisor, a=one("a", 20), c=one("c"))
    nursery.start_soon(supervisor.run)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(world.reported()) == ["a runs 20", "c runs 10"]
    supervisor.drain()


async def test_a_reload_while_a_stream_runs_does_not_shorten_its_delay_after_a_later_failure(
    autojump_clock, world, start
):
    world.failures, world.fails_after = {"a": AccessDeniedError("Denied", "")}, 10.0
    supervisor = await start(streams(a=one("a")))
    await change(supervisor, a=one("a"))
    await trio.sleep(10.5)
    assert [at for at, what in world.events if what == "a runs 10"] == [0]
    await trio.sleep(1)
    assert [at for at, what in world.events if what == "a runs 10"] == [0, 11]
    supervisor.drain()


async def test_without_streams_in_the_file_a_failure_ends_the_process(autojump_clock, world):
    world.failures = {"a": AccessDeniedError("Denied", "")}
    with pytest.RaisesGroup(AccessDeniedError):
        await StreamSupervisor(Configuration.of(one("a")), world.make).run()


async def test_the_drain_is_of_all_streams_at_the_same_time_and_starts_none(autojump_clock, world, start):
    world.drains_for, world.failures = {"a": 4, "b": 5}, {"c": AccessDeniedError("Denied", "")}
    supervisor = await start(streams(a=one("a"), b=one("b"), c=one("c")))
    await trio.sleep(1.5)
    supervisor.drain()
    await trio.sleep(20)
    assert world.events[-2:] == [(5.5, "a ends"), (6.5, "b ends")]
    assert {tuple(run.seconds) for run in world.runs if run.name != "c"} == {(None,)}


async def test_the_drain_wins_over_a_reload_that_is_being_made(autojump_clock, world, start):
    world.drains_for = {"a": 4, "b": 4}
    supervisor = await start(streams(a=one("a"), b=one("b")))
    await change(supervisor, a=one("a", 20), c=one("b"))
    supervisor.drain()
    with capture_logs() as lines:
        await Reloading(supervisor, lambda: streams(d=one("d"))).reload()
    await trio.sleep(20)
    assert sorted(world.reported()) == ["a ends", "a runs 10", "b ends", "b runs 10"]
    assert [line["event"] for line in lines] == ["reload_ignored"]


async def test_a_failure_in_the_drain_ends_no_other_and_is_raised_at_the_end(autojump_clock, world):
    world.drains_for, world.fails_in_drain = {"a": 1, "b": 5}, {"a"}
    supervisor = StreamSupervisor(streams(a=one("a"), b=one("b")), world.make)
    with pytest.RaisesGroup(AccessDeniedError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.run)
            await trio.testing.wait_all_tasks_blocked()
            supervisor.drain()
    assert world.events[-1] == (5.0, "b ends")


async def test_a_drain_of_a_removed_stream_that_is_cut_short_is_logged(autojump_clock, world, start):
    world.cut_short = {"a"}
    with capture_logs() as lines:
        supervisor = await start(streams(a=one("a"), b=one("b")))
        await change(supervisor, b=one("b"))
        supervisor.drain()
    assert [line["event"] for line in lines] == ["drain_cut_short"]


async def test_a_wrong_configuration_changes_nothing_and_is_logged(autojump_clock, world, start):
    def load() -> Configuration:
        raise ConfigurationError("efo.toml:3: [relay] topic: wrong")

    supervisor = await start(streams(a=one("a")))
    with capture_logs() as lines:
        await Reloading(supervisor, load).reload()
        await Reloading(supervisor, lambda: Configuration.of(one("a"))).reload()
    assert world.reported() == ["a runs 10"]
    assert [line["event"] for line in lines] == ["reload_failed", "reload_failed"]
    assert [line["message"][:14] for line in lines] == ["efo.toml:3: [r", "the configurat"]
    supervisor.drain()


async def test_settings_of_the_process_that_differ_are_named(autojump_clock, world, start):
    supervisor = await start(streams(a=one("a")))
    with capture_logs() as lines:
        found = one("a").model_copy(update={"service": one("a").service.model_copy(update={"port": 1})})
        await Reloading(supervisor, lambda: streams(a=found)).reload()
        supervisor.drain()
    assert [(line["event"], line.get("settings")) for line in lines] == [
        ("restart_needed", ["[service] port"]),
        ("reloaded", None),
    ]


async def test_a_refused_reload_and_a_needed_restart_are_problems_until_they_are_over(autojump_clock, world, start):
    def load() -> Configuration:
        raise ConfigurationError("efo.toml:3: [relay] topic: wrong")

    supervisor, problems, tokens = await start(Configuration.of(one("a"))), ProcessProblems(), []
    report = StreamsReport(supervisor, problems)
    await Reloading(supervisor, load, problems).reload()
    [refused] = report.status()["problems"]
    assert refused.startswith("the configuration was read again and refused")
    assert refused.endswith("efo.toml:3: [relay] topic: wrong")
    assert refused in report.problems()
    assert refused not in report.obstacles()
    service = one("a").service.model_copy(update={"port": 1, "token": SecretStr("t" * 24)})
    found = Configuration.of(one("a").model_copy(update={"service": service}))
    await Reloading(supervisor, lambda: found, problems, lambda service: tokens.extend(service.tokens)).reload()
    assert [token.secret for token in tokens] == ["t" * 24]
    assert problems.texts() == ("[service] port: these settings change when efo is started again",)
    await Reloading(supervisor, lambda: Configuration.of(one("a")), problems).reload()
    assert problems.texts() == ()
    supervisor.drain()


async def test_a_secret_that_changes_is_read_again(autojump_clock, world, start, tmp_path):
    secret = tmp_path / "url"
    secret.write_text("a")
    supervisor = await start(streams(a=one("a")))
    async with trio.open_nursery() as nursery:
        reloading = Reloading(supervisor, lambda: streams(a=one("a", int(secret.read_text() == "bb") + 30)))
        nursery.start_soon(watch_secrets, reloading, lambda: {secret})
        await trio.sleep(20)
        assert world.reported() == ["a runs 10"]
        secret.write_text("bb")
        with trio.move_on_after(10_000):
            while len(world.reported()) < 3:  # noqa: ASYNC110 - it is read in a thread, which takes no virtual time
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert world.reported() == ["a runs 10", "a ends", "a runs 31"]
    supervisor.drain()


async def test_the_status_of_several_streams_has_each_with_its_name(autojump_clock, world, start):
    world.failures = {"b": AccessDeniedError("Denied", "")}
    supervisor = await start(streams(a=one("a"), b=one("b", topic="letters")))
    await trio.sleep(0.5)
    report = StreamsReport(supervisor)
    status = report.status()
    assert list(status) == ["version", "worker_id", "draining", "problems", "last_errors", "streams"]
    assert [(stream["name"], stream["stream"]) for stream in status["streams"]] == [("a", "a"), ("b", "b")]
    assert (status["streams"][1]["topic"], status["streams"][1]["lease_table"]) == ("letters", "unknown")
    assert [problem[:3] for problem in status["problems"]] == ["a: ", "a: ", "b: "]
    assert [(found.stream, found.is_ready) for found in report.readiness()] == [("a", False), ("b", False)]
    supervisor.drain()


async def test_the_status_of_one_stream_is_that_of_the_stream(autojump_clock, world, start):
    supervisor = await start(Configuration.of(one("a")))
    report = StreamsReport(supervisor)
    assert report.status() == {"stream": "a", "shards": [], "problems": [], "last_errors": []}
    assert all(not text.startswith("a: ") for text in report.problems())
    supervisor.drain()


def test_before_a_stream_runs_the_service_is_not_ready(mock_clock):
    async def check() -> None:
        world = World()
        assert StreamsReport(StreamSupervisor(streams(a=one("a")), world.make)).obstacles() == (
            "a: it has not started yet",
        )

    trio.run(check)
