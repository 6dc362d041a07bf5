"""When credentials are loaded, kept, refreshed and replaced: over a chain that is scripted, and a clock that is set."""

import logging
import threading

import pytest
import trio
from botocore.credentials import ReadOnlyCredentials

from efo.aws import credentials as module
from efo.aws.chain import Loaded
from efo.aws.credentials import CALM_INTERVAL, REFRESH_AHEAD, CredentialSource
from efo.aws.explanations import ChainError
from efo.errors import ConfigurationError, CredentialsError

HOUR = 3600.0


def keys(number):
    return ReadOnlyCredentials(f"AK{number}", "secret", f"token{number}")


class ScriptedChain:
    """Returns or raises these results, one after the other, and then always the last one."""

    is_environment = False

    def __init__(self, *results):
        self.results = list(results)
        self.firsts: list[bool] = []

    def load(self, *, is_first):
        self.firsts.append(is_first)
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def source_of(*results):
    """Return a source of these results, each a number, a number and seconds, or an error; its chain and its clock."""
    made = [
        result if isinstance(result, Exception)
        else Loaded(keys(result), "iam-role") if isinstance(result, int)
        else Loaded(keys(result[0]), "iam-role", result[1])
        for result in results
    ]  # fmt: skip
    clock = Clock()
    source = CredentialSource(monotonic=clock)
    source._chain = chain = ScriptedChain(*made)
    return source, chain, clock


BROKEN = ChainError("the token file is missing: mount it")
DOWN = ChainError("AWS STS cannot be reached", is_unavailable=True)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (BROKEN, ConfigurationError),
        (DOWN, CredentialsError),
        (ConfigurationError("AWS_X is wrong"), ConfigurationError),
    ],
)
async def test_at_first_a_mistake_is_one_of_the_configuration_and_an_outage_is_not(failure, kind):
    source, chain, _ = source_of(failure)
    with pytest.raises(kind) as raised:
        await source.get()
    assert type(raised.value) is kind
    assert str(failure) in str(raised.value)
    assert chain.firsts == [True]


@pytest.mark.parametrize("failure", [BROKEN, DOWN, ConfigurationError("AWS_X is wrong")])
async def test_after_the_first_success_every_failure_passes(failure):
    source, chain, clock = source_of((1, HOUR), failure, failure, (2, HOUR))
    assert await source.get() == keys(1)
    clock.now += HOUR
    with pytest.raises(CredentialsError, match="cannot be refreshed now") as raised:
        await source.get()
    assert raised.value.retryable
    assert str(failure) in str(raised.value)
    clock.now += 1
    with pytest.raises(CredentialsError):
        await source.get()
    clock.now += 1
    assert await source.get() == keys(2)
    assert chain.firsts == [True, False, False, False]


async def test_while_there_are_none_the_chain_is_asked_once_a_second_however_many_ask():
    source, chain, clock = source_of((1, 60.0), BROKEN)
    await source.get()
    clock.now += 60
    for _ in range(1000):
        with pytest.raises(CredentialsError):
            await source.get()
        clock.now += 0.005
    assert len(chain.firsts) == 1 + 5


@pytest.mark.parametrize(("lifetime", "refreshed_after"), [(HOUR, HOUR - REFRESH_AHEAD), (900.0, 450.0), (20.0, 10.0)])
async def test_they_are_refreshed_before_they_expire(lifetime, refreshed_after):
    source, _, clock = source_of((1, lifetime), (2, lifetime))
    await source.get()
    clock.now += refreshed_after - 0.1
    assert await source.get() == keys(1)
    clock.now += 0.2
    assert await source.get() == keys(2)


async def test_a_refresh_that_fails_takes_nothing_away_while_they_are_valid(caplog):
    source, chain, clock = source_of((1, HOUR), BROKEN)
    await source.get()
    clock.now += HOUR - REFRESH_AHEAD
    for _ in range(10):
        assert await source.get() == keys(1)
        clock.now += CALM_INTERVAL / 10
    assert len(chain.firsts) == 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "the token file is missing" in caplog.text
    clock.now += REFRESH_AHEAD - CALM_INTERVAL - 0.5
    assert await source.get() == keys(1)
    clock.now += 0.6
    with pytest.raises(CredentialsError):
        await source.get()
    chain.results = [Loaded(keys(2), "iam-role", HOUR)]
    clock.now += 1.0
    assert await source.get() == keys(2)
    assert caplog.messages[-1] == "the AWS credentials are refreshed again"


async def test_credentials_that_look_expired_by_a_wrong_clock_are_used():
    source, chain, clock = source_of((1, -600.0))
    for _ in range(10):
        assert await source.get() == keys(1)
        clock.now += CALM_INTERVAL / 10 - 0.1
    assert len(chain.firsts) == 1


async def test_static_credentials_are_read_again_when_a_service_refuses_them():
    source, chain, clock = source_of(1, 1, 2)
    await source.get()
    clock.now += 100 * HOUR
    assert await source.get() == keys(1)
    assert not await source.replace()  # the file has not changed
    assert not await source.replace()  # not twice in a second
    assert len(chain.firsts) == 2
    clock.now += 1.0
    assert await source.replace()
    assert await source.get() == keys(2)


async def test_credentials_that_lack_a_permission_are_looked_for_now_and_then():
    source, chain, clock = source_of((1, HOUR), BROKEN, (2, HOUR))
    await source.get()
    assert not await source.replace(is_denied=True)
    assert len(chain.firsts) == 1
    clock.now += CALM_INTERVAL
    assert not await source.replace(is_denied=True)
    assert await source.get() == keys(1)  # the chain fails, and they are still good for something
    clock.now += CALM_INTERVAL
    assert await source.replace(is_denied=True)


async def test_refused_credentials_that_cannot_be_replaced_are_not_used_again():
    source, _, clock = source_of((1, HOUR), BROKEN, (2, HOUR))
    await source.get()
    clock.now += 10
    assert not await source.replace()
    with pytest.raises(CredentialsError, match="the token file is missing"):
        await source.get()
    clock.now += 1
    assert await source.get() == keys(2)


async def test_tasks_that_ask_together_share_one_attempt():
    source, chain, _ = source_of((1, HOUR))
    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(source.get)
    assert len(chain.firsts) == 1


async def test_a_cancelled_attempt_leaves_its_result_to_the_next_one():
    source, chain, _ = source_of((1, HOUR))
    entered, released = threading.Event(), threading.Event()
    load = chain.load

    def slow(*, is_first):
        entered.set()
        released.wait(10)
        return load(is_first=is_first)

    chain.load = slow
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.get)
            await trio.to_thread.run_sync(entered.wait)
            scope.cancel()
    released.set()
    assert await source.get() == keys(1)
    assert len(chain.firsts) == 1


async def test_an_attempt_has_a_time_limit(monkeypatch):
    monkeypatch.setattr(module, "LOAD_SECONDS", 0.01)
    source, chain, _ = source_of((1, HOUR))
    released = threading.Event()
    chain.load = lambda **_: released.wait(10)
    with pytest.raises(CredentialsError, match="no result within"):
        await source.get()
    released.set()


def test_threads_use_it_without_trio():
    source, chain, _ = source_of((1, HOUR))
    assert source.get_blocking() == keys(1)
    assert source.get_blocking() == keys(1)
    assert (len(chain.firsts), source.provider) == (1, "iam-role")


def test_a_wrong_variable_is_refused_when_the_source_is_made(monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "hunter2\n")
    with pytest.raises(ConfigurationError, match="environment AWS_SESSION_TOKEN") as raised:
        CredentialSource()
    assert "hunter2" not in str(raised.value)
