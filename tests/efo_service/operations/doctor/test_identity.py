"""Whether leases and log are of the stream that exists now, and whether the initial position is possible (R15)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from efo.leases.store import Inspection
from efo.model import Position
from efo.testing import FakeKinesis
from efo.testing.control_plane import FakeControlPlane
from efo.testing.faults import Refuse
from efo.testing.faults.script import When
from efo_service.exit_codes import Exit
from efo_service.operations.doctor.leases import identity_checks, judge_identity, judge_start
from efo_service.operations.doctor.running import Check, passed, run_checks

CREATED_AT = 1_767_225_600.0
FORMER = CREATED_AT - 3600


class Leases:
    def __init__(self, *created_at: float) -> None:
        self.created_at = created_at

    async def inspect(self) -> Inspection:
        return Inspection(exists=True, created_at=self.created_at)


@pytest.fixture
async def fake():
    async with FakeKinesis() as fake:
        fake.create_stream("orders")
        yield fake


@pytest.fixture
def found(fake):
    """Return a function that runs the checks, and returns the outcomes by name."""

    async def run(*of_leases: float, topics: dict[str, float] | None = None, initial: Position | None = None):
        async def client():
            return fake.kinesis("orders")

        async def reached():
            return passed("")

        initial = initial or Position.trim_horizon()
        checks = identity_checks(client, lambda: Leases(*of_leases), lambda: topics or {}, initial)
        before = [Check("stream", reached, ""), Check("lease store", reached, "")]
        return {finding.name: finding.outcome for finding in await run_checks([*before, *checks], 60)}

    return run


async def test_leases_and_topics_of_this_stream_pass(found):
    outcome = (await found(CREATED_AT, topics={"log/orders": CREATED_AT + 0.5}))["stream identity"]
    assert outcome.result == "passed"
    assert "2026-01-01T00:00:00Z" in outcome.detail


async def test_without_leases_and_topics_there_is_nothing_to_compare(found):
    assert (await found())["stream identity"].result == "passed"


@pytest.mark.parametrize(
    ("of_leases", "topics", "text", "remedy"),
    [
        ((FORMER,), {}, "the leases are of the one that was created at 2025-12-31T23:00:00Z", "efo leases reset --all"),
        ((CREATED_AT, FORMER), {}, "the leases are", "efo leases reset --all"),
        ((), {"log/orders": FORMER}, "the topic log/orders is of the one", "efo log adopt"),
        ((CREATED_AT,), {"a": CREATED_AT, "b": FORMER}, "the topic b is", "efo log adopt"),
    ],
)
async def test_what_is_of_another_stream_is_found_with_its_remedy(found, of_leases, topics, text, remedy):
    outcome = (await found(*of_leases, topics=topics))["stream identity"]
    assert (outcome.result, outcome.code) == ("failed", Exit.CONFIGURATION)
    assert "the stream was deleted and created again: " in outcome.detail
    assert text in outcome.detail
    assert remedy in outcome.remedy


async def test_without_permission_it_is_not_tested(fake, found):
    fake.faults.add(Refuse("AccessDeniedException"), When(operation="DescribeStreamSummary"))
    assert (await found(FORMER))["stream identity"].result == "not tested"


async def test_a_server_that_does_not_say_it_is_not_compared(found, monkeypatch):
    describe = FakeControlPlane.describe_stream

    async def without_time(control):
        return replace(await describe(control), created_at=None)

    monkeypatch.setattr(FakeControlPlane, "describe_stream", without_time)
    assert (await found(FORMER))["stream identity"].result == "not tested"


async def test_a_start_in_the_future_is_found_and_one_within_the_error_of_clocks_passes(found):
    assert "initial position" not in await found()
    for seconds, result in ((-60, "passed"), (200, "passed"), (3600, "failed")):
        outcomes = await found(initial=Position.at_timestamp(CREATED_AT + seconds))
        assert outcomes["initial position"].result == result
    assert outcomes["initial position"].code == Exit.CONFIGURATION
    assert "2026-01-01T01:00:00Z is in the future" in outcomes["initial position"].detail


def test_what_is_judged_is_independent_of_the_order():
    assert judge_identity(CREATED_AT, (FORMER,), {"t": FORMER}).result == "failed"
    assert judge_identity(None, (FORMER,), {}).result == "not tested"
    assert judge_start(Position.at_timestamp(1.0), 1.0).result == "passed"
