"""The stream: permissions, state, encryption, and room for the fan-out consumer, on the fake in memory."""

from dataclasses import replace
from itertools import pairwise

import pytest
import trio

from efo.errors import (
    AccessDeniedError,
    ClockSkewError,
    ExpiredCredentialsError,
    KmsError,
    RejectedCredentialsError,
    ServiceError,
    ThrottledError,
)
from efo.model import FanOutConsumer, StreamDescription
from efo.testing import FakeKinesis, FakeSettings
from efo.testing.control_plane import FakeControlPlane
from efo.testing.faults import NoResponse, Refuse
from efo.testing.faults.script import ALWAYS, When
from efo_service.exit_codes import Exit
from efo_service.operations.doctor.kinesis import (
    judge_consumers,
    judge_encryption,
    judge_get_records,
    judge_signature,
    judge_stream,
    kinesis_checks,
)
from efo_service.operations.doctor.running import Check, passed, run_checks

DENIED = Refuse("AccessDeniedException", "User is not authorized to perform this", status=400)
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
UNCALLED = ["kinesis:RegisterStreamConsumer", "kinesis:DeregisterStreamConsumer"]


@pytest.fixture
async def fake():
    async with FakeKinesis(settings=FakeSettings(consumers_creating=50)) as fake:
        fake.create_stream("orders", 2)
        yield fake


@pytest.fixture
def found_on():
    """Return a function of a fake that returns a function that runs the checks, and returns the outcomes by name."""

    def of(fake):
        async def run(read_mode="fanout", stream="orders"):
            async def client():
                return fake.kinesis(stream)

            async def reached():
                return passed("")

            checks = [Check("http2", reached, ""), *kinesis_checks(client, "efo", ("http2",), read_mode)]
            return {finding.name: finding.outcome for finding in await run_checks(checks, 5)}

        return run

    return of


@pytest.fixture
def found(fake, found_on):
    return found_on(fake)


def failures(outcomes):
    return [name for name, outcome in outcomes.items() if outcome.result == "failed"]


async def test_a_stream_that_can_be_read_passes_and_what_would_change_it_is_not_called(fake, found, autojump_clock):
    calls = []
    called = fake._faults.call
    fake._faults.call = lambda name, *rest: calls.append(name) or called(name, *rest)
    outcomes = await found()
    assert failures(outcomes) == []
    assert [name for name, outcome in outcomes.items() if outcome.result == "not tested"] == UNCALLED
    assert sorted(calls) == [
        "DescribeLimits", "DescribeStreamConsumer", "DescribeStreamSummary", "GetRecords", "GetShardIterator",
        "GetShardIterator", "ListShards", "ListStreamConsumers", "SubscribeToShard",
    ]  # fmt: skip
    assert fake.subscriptions("orders", "shardId-000000000000").made == 0
    assert outcomes["stream"].detail == "orders is ACTIVE, with a retention period of 24 hours"
    assert outcomes["kinesis:ListShards"].detail == "allowed; 2 shards, 2 of them open"
    assert outcomes["fan-out consumer"].detail.startswith("0 of 20 exist; efo is not among them")


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("DescribeStreamSummary", "kinesis:DescribeStreamSummary on the stream"),
        ("ListShards", f"kinesis:ListShards on {ARN}"),
        ("ListStreamConsumers", f"kinesis:ListStreamConsumers on {ARN}"),
        ("DescribeStreamConsumer", f"kinesis:DescribeStreamConsumer on {ARN}/consumer/efo:*"),
    ],
)
async def test_a_permission_that_is_denied_is_named_with_its_resource(fake, found, autojump_clock, operation, action):
    fake.faults.add(DENIED, When(operation=operation))
    outcomes = await found()
    assert failures(outcomes) == [f"kinesis:{operation}"]
    outcome = outcomes[f"kinesis:{operation}"]
    assert outcome.detail == "AccessDeniedException: User is not authorized to perform this"
    assert outcome.remedy == f"allow {action} in the policies of these credentials"
    assert outcome.code == Exit.UNAVAILABLE


async def test_a_subscription_is_asked_for_and_none_is_made(fake, found, autojump_clock):
    outcomes = await found()
    assert outcomes["kinesis:SubscribeToShard"].detail == "allowed; nothing of this name exists"
    fake.register("orders", "efo")
    outcomes = await found()
    assert outcomes["kinesis:SubscribeToShard"].detail == "allowed, by a dry run"
    fake.faults.add(DENIED, When(operation="SubscribeToShard"))
    outcome = (await found())["kinesis:SubscribeToShard"]
    assert outcome.result == "failed"
    assert (
        outcome.remedy == f"allow kinesis:SubscribeToShard on {ARN}/consumer/efo:* in the policies of these credentials"
    )


@pytest.mark.parametrize("knows", [False, AccessDeniedError("AccessDeniedException", "no")])
async def test_a_service_that_may_not_know_dry_run_is_not_asked_to_subscribe(
    fake, found, autojump_clock, monkeypatch, knows
):
    async def knows_dry_run(_self, _shard_id):
        if isinstance(knows, Exception):
            raise knows
        return knows

    monkeypatch.setattr(FakeControlPlane, "knows_dry_run", knows_dry_run)
    monkeypatch.setattr(FakeControlPlane, "try_to_subscribe", None)
    outcome = (await found())["kinesis:SubscribeToShard"]
    assert outcome.result == "not tested"
    assert "takes over a shard" in outcome.detail


async def test_dry_runs_are_a_second_apart(fake, found, autojump_clock, monkeypatch):
    times = []
    fake.faults.add(Refuse("ProvisionedThroughputExceededException"), When(operation="GetRecords"))
    for name in ("knows_dry_run", "try_to_read", "try_to_subscribe"):

        async def call(_self, *_arguments):
            times.append(trio.current_time())
            return True

        monkeypatch.setattr(FakeControlPlane, name, call)
    outcomes = await found()
    assert outcomes["kinesis:GetRecords"].detail.startswith("allowed, by a dry run")
    assert len(times) == 3
    assert all(later - earlier > 1 for earlier, later in pairwise(sorted(times)))


async def test_a_denied_read_is_not_hidden_by_throttling(fake, found, autojump_clock, monkeypatch):
    async def try_to_read(_self, _shard_id):
        raise AccessDeniedError("AccessDeniedException", "no")

    monkeypatch.setattr(FakeControlPlane, "try_to_read", try_to_read)
    fake.faults.add(Refuse("ProvisionedThroughputExceededException"), When(operation="GetRecords"))
    assert (await found())["kinesis:GetRecords"].result == "not tested"


async def test_the_limits_of_the_account_are_shown(fake, found, autojump_clock):
    fake.create_stream("other", 3, distribution="AUTO")
    outcomes = await found()
    assert outcomes["account"].detail == "5 of 20000 shards, 1 of 50 on-demand streams"
    fake.faults.add(DENIED, When(operation="DescribeLimits"))
    outcome = (await found())["account"]
    assert (outcome.result, outcome.detail) == (
        "not tested",
        "DescribeLimits failed with AccessDeniedException; `efo run` does not need it",
    )


@pytest.mark.parametrize(
    ("advantage", "detail"),
    [(False, "20 of 20 exist, and efo is not among them"), (True, "20 of 50 exist; efo is not among them")],
)
async def test_on_demand_advantage_has_room_for_fifty(autojump_clock, found_on, advantage, detail):
    settings = FakeSettings(consumers_per_stream=50, consumers_creating=50, on_demand_advantage=advantage)
    async with FakeKinesis(settings=settings) as fake:
        fake.create_stream("orders", distribution="AUTO")
        for number in range(20):
            fake.register("orders", f"other-{number}")
        outcomes = await found_on(fake)()
    assert outcomes["fan-out consumer"].detail.startswith(detail)


async def test_queues_need_room_too(fake, found, autojump_clock, monkeypatch):
    describe = FakeControlPlane.describe_stream

    async def with_queues(control):
        return replace(await describe(control), queues=18)

    monkeypatch.setattr(FakeControlPlane, "describe_stream", with_queues)
    for number in range(2):
        fake.register("orders", f"other-{number}")
    outcomes = await found()
    assert outcomes["fan-out consumer"].result == "failed"
    assert outcomes["fan-out consumer"].detail.startswith("20 of 20 exist, 18 of them queues, and efo is not")


async def test_get_records_is_optional_since_only_efo_shards_needs_it(fake, found, autojump_clock):
    fake.faults.add(DENIED, When(operation="GetRecords"))
    outcomes = await found()
    assert failures(outcomes) == []
    assert "--no-lag" in outcomes["kinesis:GetRecords"].detail


@pytest.mark.parametrize("code", ["UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException"])
async def test_credentials_that_the_service_rejects_are_one_failure(fake, found, autojump_clock, code):
    fake.faults.add(Refuse(code, status=400), When(operation="*", times=100))
    outcomes = await found()
    assert failures(outcomes) == ["signature"]
    assert "credentials" in outcomes["signature"].remedy
    assert outcomes["stream"].detail == "signature failed"


async def test_a_call_that_hangs_fails_alone(fake, found, autojump_clock):
    fake.faults.add(NoResponse(), When(operation="ListStreamConsumers"))
    start = trio.current_time()
    outcomes = await found()
    assert failures(outcomes) == ["kinesis:ListStreamConsumers"]
    assert outcomes["fan-out consumer"].detail == "kinesis:ListStreamConsumers failed"
    assert trio.current_time() - start == pytest.approx(5)


async def test_a_missing_stream_is_one_failure(found, autojump_clock):
    outcomes = await found(stream="nobody")
    assert failures(outcomes) == ["stream"]
    assert "create the stream" in outcomes["stream"].remedy
    assert outcomes["kinesis:DescribeStreamSummary"].result == "passed"


async def test_a_full_quota_without_efos_own_consumer_fails(fake, found, autojump_clock):
    for number in range(20):
        fake.register("orders", f"other-{number}")
    outcomes = await found()
    assert failures(outcomes) == ["fan-out consumer"]
    assert outcomes["fan-out consumer"].detail.startswith("20 of 20 exist")
    assert "efo consumers janitor" in outcomes["fan-out consumer"].remedy


async def test_a_full_quota_with_efos_own_consumer_passes_and_it_stays_as_it_is(fake, found, autojump_clock):
    own = fake.register("orders", "efo")
    for number in range(19):
        fake.register("orders", f"other-{number}")
    await trio.sleep(2)
    outcomes = await found()
    assert failures(outcomes) == []
    assert outcomes["fan-out consumer"].detail == "20 of 20 exist; efo is ACTIVE"
    consumers = await fake.kinesis("orders").control_plane.list_consumers(ARN)
    assert [consumer.arn for consumer in consumers if consumer.name == "efo"] == [own.arn]


async def test_a_key_that_is_disabled_fails_when_a_record_is_read(fake, found, autojump_clock):
    fake.encrypt("orders", "alias/own")
    assert (await found())["encryption"].detail.endswith("kms:Decrypt is allowed on the key alias/own")
    fake.fail_key("orders", "KMSDisabledException")
    outcomes = await found()
    assert failures(outcomes) == ["kinesis:GetRecords"]
    assert outcomes["kinesis:GetRecords"].remedy == "enable the key, and allow kms:Decrypt on alias/own"


# --- what it means ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "result"),
    [("ACTIVE", "passed"), ("UPDATING", "passed"), ("CREATING", "failed"), ("DELETING", "failed")],
)
def test_a_stream_can_be_read_while_it_is_active_or_updating(status, result):
    outcome = judge_stream(StreamDescription("orders", ARN, status, 24))
    assert (outcome.result, bool(outcome.remedy)) == (result, result == "failed")
    assert f"orders is {status}" in outcome.detail


@pytest.mark.parametrize(
    ("key", "result"),
    [(None, "passed"), ("alias/aws/kinesis", "passed"), ("arn:aws:kms:us-east-1:1:key/k", "not tested")],
)
def test_only_an_own_key_needs_a_permission(key, result):
    outcome = judge_encryption(key)
    assert outcome.result == result
    assert key is None or key in outcome.detail


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (None, "passed"),
        (KmsError("KMSDisabledException", "The key is disabled"), "failed"),
        (AccessDeniedError("AccessDeniedException", ""), "not tested"),
        (ThrottledError("ProvisionedThroughputExceededException", ""), "not tested"),
        (ServiceError("Unknown", ""), "failed"),
    ],
)
def test_a_key_that_cannot_be_used_fails_when_a_record_is_read(error, result):
    outcome = judge_get_records(error, StreamDescription("orders", ARN, "ACTIVE", 24, "alias/own"))
    assert outcome.result == result
    assert ("kms:Decrypt on alias/own" in outcome.remedy) == isinstance(error, KmsError)


@pytest.mark.parametrize("read_mode", ["polling", "auto"])
async def test_polling_needs_get_records(fake, found, autojump_clock, read_mode):
    assert failures(await found(read_mode)) == []
    fake.faults.add(DENIED, When(operation="GetRecords", times=ALWAYS))
    outcomes = await found(read_mode)
    assert failures(outcomes) == ["kinesis:GetRecords"]
    assert f"allow kinesis:GetShardIterator and kinesis:GetRecords on {ARN}" in outcomes["kinesis:GetRecords"].remedy


async def test_polling_needs_nothing_of_fan_out(fake, found, autojump_clock):
    for operation in ("ListStreamConsumers", "DescribeStreamConsumer"):
        fake.faults.add(DENIED, When(operation=operation, times=ALWAYS))
    outcomes = await found("polling")
    assert failures(outcomes) == []
    assert not any("onsumer" in name or "Subscribe" in name for name in outcomes)
    assert failures(await found("auto")) == ["kinesis:ListStreamConsumers", "kinesis:DescribeStreamConsumer"]


def test_auto_does_without_a_fan_out_consumer_while_there_is_no_room():
    outcome = judge_consumers(consumers(20), 0, "efo", 20, "auto")
    assert outcome.result == "passed"
    assert "20 of 20 exist, and efo is not among them: `efo run` polls until another is deregistered" in outcome.detail


def test_a_denied_permission_means_that_the_credentials_are_valid():
    assert judge_signature(AccessDeniedError("AccessDeniedException", "")).result == "passed"
    assert judge_signature(AccessDeniedError("AccessDenied", "")).result == "passed"
    assert judge_signature(ThrottledError("LimitExceededException", "")).result == "passed"


def test_what_every_call_with_these_credentials_has_is_reported_first():
    expired = judge_signature(ExpiredCredentialsError("ExpiredTokenException", ""))
    rejected = judge_signature(RejectedCredentialsError("UnrecognizedClientException", ""))
    skewed = judge_signature(ClockSkewError("InvalidSignatureException", "the request was signed 600 s behind"))
    assert [outcome.result for outcome in (expired, rejected, skewed)] == ["failed"] * 3
    assert expired.remedy == "renew the credentials: these have expired"
    assert rejected.remedy == "use other credentials, or correct them: the service rejects these"
    assert skewed.remedy == "synchronize this host's clock (NTP)"
    assert "600 s behind" in skewed.detail


def consumers(count, own=None):
    named = [FanOutConsumer(str(number), "", "ACTIVE") for number in range(count)]
    return named + ([FanOutConsumer("efo", "", own)] if own else [])


@pytest.mark.parametrize(
    ("existing", "result", "detail"),
    [
        (consumers(19), "passed", "19 of 20 exist; efo is not among them: `efo run` registers it"),
        (consumers(20), "failed", "20 of 20 exist (with On-demand Advantage there is room for 50)"),
        (consumers(21), "passed", "21 of 50 exist"),
        (consumers(50), "failed", "50 of 50 exist, and efo is not among them"),
        (consumers(19, "ACTIVE"), "passed", "20 of 20 exist; efo is ACTIVE"),
        (consumers(0, "CREATING"), "passed", "1 of 20 exist; efo is CREATING"),
        (consumers(0, "DELETING"), "failed", "1 of 20 exist; efo is being deleted"),
        (consumers(3, "NEW"), "passed", "4 of 20 exist; efo is NEW"),
    ],
)
def test_efos_own_consumer_exists_or_has_room(existing, result, detail):
    outcome = judge_consumers(existing, 0, "efo", None)
    assert outcome.result == result
    assert outcome.detail.startswith(detail)
