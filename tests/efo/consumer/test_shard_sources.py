"""How the events of a shard are read, by the read mode, and which errors end that."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from efo.consumer import shard_sources
from efo.consumer.shard_sources import FANOUT_RETRY_INTERVAL, ShardSources
from efo.errors import AccessDeniedError, RejectedCredentialsError, ServiceError, ThrottledError
from efo.events import ReadModeChanged
from efo.kinesis.polling.auto_source import AutoSource
from efo.kinesis.polling.shard_polling import ShardPolling
from efo.kinesis.shard_subscription import ShardSubscription
from efo.model import Position
from efo.settings import ConsumerSettings

DENIED = AccessDeniedError("AccessDeniedException", "no permission")
REJECTED = RejectedCredentialsError("UnrecognizedClientException", "no such key")
INVALID = ServiceError("InvalidArgumentException", "no")
THROTTLED = ThrottledError("LimitExceededException", "slow down")
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
POSITION = Position.trim_horizon()


class Registration:
    """A fan-out consumer. `ensured`: how often it was registered. `failing`: what that raises."""

    is_active = "active"
    arn = f"{ARN}/consumer/app:1"

    def __init__(self) -> None:
        self.ensured = 0
        self.failing: list[Exception] = []
        self.diagnosed: list[str] = []

    async def ensure(self) -> None:
        self.ensured += 1
        await trio.lowlevel.checkpoint()
        if self.failing:
            raise self.failing.pop(0)

    async def diagnose(self, shard_id: str, error: Exception) -> Exception:
        self.diagnosed.append(shard_id)
        await trio.lowlevel.checkpoint()
        return error


class Limiter:
    """A limiter of several streams, which runs elsewhere."""


def sources_of(read_mode: str = "fanout", *, stream_arn: str | None = None, **options: Any) -> Any:
    """Return the sources of a consumer, with `registration` and `seen`."""
    kinesis = SimpleNamespace(
        control_plane=None,
        sign="sign",
        authority="host",
        scheme="https",
        correct="correct",
        stream="orders",
        stream_arn=stream_arn,
    )
    settings = ConsumerSettings(read_mode=read_mode, poll_seconds=3.0, **options.pop("settings", {}))
    registration, seen = Registration(), []
    sources: Any = ShardSources(
        kinesis,
        settings,
        registration,
        None,
        pool="pool",
        rng=random.Random(1),
        observer=seen.append,
        **options,
    )
    sources.registration, sources.seen = registration, seen
    return sources


@pytest.mark.parametrize(
    ("read_mode", "kind"), [("fanout", ShardSubscription), ("polling", ShardPolling), ("auto", AutoSource)]
)
async def test_a_shard_is_read_as_the_read_mode_says(autojump_clock, read_mode, kind):
    sources = sources_of(read_mode)
    async with trio.open_nursery() as nursery:
        source = sources.open(nursery, "s-0", POSITION)
        assert type(source) is kind
        assert source.position == POSITION
        nursery.cancel_scope.cancel()


async def test_a_subscription_shares_what_is_of_the_consumer(autojump_clock):
    limiter = Limiter()
    sources = sources_of(limiter=limiter)
    async with trio.open_nursery() as nursery:
        one, two = sources.open(nursery, "s-0", POSITION), sources.open(nursery, "s-1", POSITION)
        assert (one.shard_id, one._nursery, one._limiter) == ("s-0", nursery, limiter)
        assert one._caller is two._caller
        assert one._on_success == sources._denials.worked
        await one._diagnose(INVALID)
        assert sources.registration.diagnosed == ["s-0"]
        nursery.cancel_scope.cancel()


async def test_the_polling_of_a_shard_has_the_settings_of_the_consumer(autojump_clock):
    sources = sources_of("polling")
    polling = sources.open(None, "s-0", POSITION)
    assert polling.shard_id == "s-0"
    assert polling._on_success == sources._denials.worked
    assert polling._explain_missing == sources._missing_shards.explain


@pytest.mark.parametrize(
    ("stream_arn", "settings", "of_stream"),
    [
        (None, {}, {"StreamName": "orders"}),
        (ARN, {}, {"StreamARN": ARN}),
        (None, {"consumer_arn": f"{ARN}/consumer/theirs:17"}, {"StreamARN": ARN}),
    ],
)
async def test_a_stream_is_polled_by_its_arn_if_one_is_known(autojump_clock, stream_arn, settings, of_stream):
    assert sources_of("fanout", stream_arn=stream_arn, settings=settings)._poller._of_stream == of_stream


@pytest.mark.parametrize(
    ("read_mode", "ensured", "reported"), [("fanout", 1, []), ("auto", 1, []), ("polling", 0, ["polling"])]
)
async def test_the_consumer_is_registered_if_shards_are_subscribed(autojump_clock, read_mode, ensured, reported):
    sources = sources_of(read_mode)
    async with trio.open_nursery() as nursery:
        await nursery.start(sources.run)
        assert sources.registration.ensured == ensured
        nursery.cancel_scope.cancel()
    assert sources.seen == [ReadModeChanged(mode) for mode in reported]
    assert sources.read_mode == ("polling" if read_mode == "polling" else "fanout")
    assert sources.is_registered == "active"


async def test_a_consumer_that_cannot_be_registered_is_polled_meanwhile_if_it_may_be(autojump_clock):
    sources = sources_of("fanout")
    sources.registration.failing = [DENIED]
    with pytest.RaisesGroup(AccessDeniedError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(sources.run)
    auto = sources_of("auto")
    auto.registration.failing = [DENIED]
    async with trio.open_nursery() as nursery:
        await nursery.start(auto.run)
        assert (auto.read_mode, auto.fan_out_error) == ("polling", DENIED)
        await trio.sleep(FANOUT_RETRY_INTERVAL - 0.5)
        assert auto.registration.ensured == 1
        await trio.sleep(1)
        assert auto.registration.ensured == 2
        nursery.cancel_scope.cancel()
    assert FANOUT_RETRY_INTERVAL == 300.0


@pytest.mark.parametrize("has_own", [True, False])
async def test_the_limiter_of_several_streams_runs_elsewhere(autojump_clock, monkeypatch, has_own):
    made = []

    class Pacer:
        def __init__(self, rate: float) -> None:
            made.append(rate)

        async def run(self, task_status=trio.TASK_STATUS_IGNORED) -> None:
            made.append("runs")
            await trio.lowlevel.checkpoint()
            task_status.started()

    monkeypatch.setattr(shard_sources, "SubscribePacer", Pacer)
    sources = sources_of("fanout", **({} if has_own else {"limiter": Limiter()}))
    async with trio.open_nursery() as nursery:
        await nursery.start(sources.run)
        nursery.cancel_scope.cancel()
    assert made == ([ConsumerSettings().subscribes_per_second, "runs"] if has_own else [])


@pytest.mark.parametrize(
    ("error", "waits", "is_final"),
    [
        (DENIED, True, False),
        (DENIED, False, True),
        (INVALID, True, True),
        (INVALID, False, True),
        (THROTTLED, True, False),
        (THROTTLED, False, False),
    ],
)
async def test_after_the_first_success_a_denial_is_waited_for_if_the_policy_is_to_wait(
    autojump_clock, error, waits, is_final
):
    sources = sources_of("polling", waits=waits)
    polling = sources.open(None, "s-0", POSITION)
    polling._on_success()
    await trio.sleep(3600)
    assert polling._is_final(error) is is_final


@pytest.mark.parametrize(
    ("read_mode", "error", "is_final"),
    [
        ("fanout", DENIED, False),
        ("auto", DENIED, True),  # then the shard is polled
        ("auto", REJECTED, False),
        ("auto", THROTTLED, False),
        ("auto", INVALID, True),
        ("fanout", INVALID, True),
    ],
)
async def test_a_denied_subscription_ends_if_the_shard_can_be_polled(autojump_clock, read_mode, error, is_final):
    sources = sources_of(read_mode)
    sources._denials.worked()
    async with trio.open_nursery() as nursery:
        source = sources.open(nursery, "s-0", POSITION)
        subscription = source if read_mode == "fanout" else source._subscribe(POSITION)
        assert subscription._is_final(error) is is_final
        nursery.cancel_scope.cancel()


def test_by_default_denials_are_waited_for():
    async def main() -> bool:
        return sources_of("polling")._waits

    assert trio.run(main)
