"""Kinesis that refuses, throttles, falls silent or is gone: each has a sentence of its own, with its remedy."""

from __future__ import annotations

from efo.testing import ALWAYS, FakeKinesisThread, When
from efo.testing.faults import EmptyResponse, EndStream, Fault, Refuse, Stall
from proofs.edges.service import STREAM, serving
from proofs.incidents.incident import Expected, Incident, in_log, running
from proofs.situations.situation import Cases, Outcome

cases = Cases("kinesis", seconds=240)

_LIMIT = 15.0
"""Seconds: an idle shard has an event about every 5 s, so two that are missing are 10 s."""
_DISCONNECTED = "EfoShardsDisconnected"


def _began(one: Incident, fault: Fault) -> None:
    """Let all subscriptions end, and this happen to all calls from now on."""
    one.kinesis.inject(fault, When(operation="*", times=ALWAYS))
    one.kinesis.inject(EndStream(), When(stream=STREAM, times=1))


def _refused(refusal: Refuse, remedy: str, alert: str = _DISCONNECTED) -> Outcome:
    with running() as one:
        expected = Expected(remedy, obstacle="not subscribed for .*: .*", alert=alert)
        one.play(lambda: _began(one, refusal), expected, _LIMIT)
        one.kinesis.call(lambda fake: fake.faults.clear())
        return one.outcome()


@cases.case("not ready; the service fails by itself")
def internal_failures() -> Outcome:
    return _refused(Refuse("InternalFailureException", status=500), "fails by itself")


@cases.case("not ready; other callers of the account, and subscribes_per_second")
def a_limit_is_exceeded() -> Outcome:
    return _refused(Refuse("LimitExceededException"), "lower .consumer. subscribes_per_second")


@cases.case("not ready; what renews the credentials")
def the_token_has_expired() -> Outcome:
    return _refused(Refuse("ExpiredTokenException"), "what renews these credentials")


@cases.case("not ready; the policy")
def access_is_denied() -> Outcome:
    return _refused(Refuse("AccessDeniedException"), "permit the call in the policy")


@cases.case("not ready; the key of KMS and the permission to decrypt")
def the_key_of_kms_is_denied() -> Outcome:
    return _refused(Refuse("KMSAccessDeniedException"), "enable the stream's KMS key, and permit kms:Decrypt")


@cases.case("frozen: not ready, and the page of EfoShardsFrozen")
def subscriptions_are_open_and_silent() -> Outcome:
    with running() as one:

        def begin() -> None:
            one.kinesis.inject(Stall(), When(stream=STREAM, times=ALWAYS))
            one.kinesis.inject(EmptyResponse(), When(stream=STREAM, times=ALWAYS))

        one.play(begin, Expected("frozen: the subscription is open", alert="EfoShardsFrozen"), _LIMIT)
        one.kinesis.call(lambda fake: fake.faults.clear())
        return one.outcome(seconds=90)


@cases.case("the log and /status tell the new cause with its own remedy")
def the_cause_changes() -> Outcome:
    with running() as one:
        one.play(
            lambda: _began(one, Refuse("InternalFailureException", status=500)),
            Expected("fails by itself", log="kinesis_outage_began", obstacle="not subscribed for"),
            _LIMIT,
        )

        def change() -> None:
            one.kinesis.call(lambda fake: fake.faults.clear())
            _began(one, Refuse("ExpiredTokenException"))

        expected = Expected("what renews these credentials", "kinesis_outage_changed", obstacle="what renews")
        one.play(change, expected, _LIMIT)
        one.kinesis.call(lambda fake: fake.faults.clear())
        return one.outcome()


@cases.case("not ready; routes and firewalls")
def nothing_listens_at_the_endpoint() -> Outcome:
    kinesis = FakeKinesisThread()
    kinesis.__enter__()  # the incident ends it
    kinesis.create_stream(STREAM, 2)
    with serving(kinesis) as service:
        one = Incident(kinesis, service, in_log)
        one.start()
        one.stop_trickle()
        expected = Expected("Kinesis has failed .*look at routes", obstacle="not subscribed for", alert=_DISCONNECTED)
        one.play(lambda: kinesis.__exit__(None, None, None), expected, _LIMIT)
        return one.outcome()


@cases.case("a page, and a sentence with the time in which they arrived; the service goes on")
def records_expire_unread() -> Outcome:
    with running(shards=1) as one:
        one.service.stop()
        one.kinesis.call(lambda fake: fake.retain(STREAM, 1 / 3600))
        one.until(lambda: False, 3)
        expected = Expected(
            "expired before they were read", "records_expired", "efo_record_expired_time_seconds_total", obstacle=""
        )
        one.play(one.restart, expected, 20)
        one.kinesis.call(lambda fake: fake.retain(STREAM, 24))
        one.stop_trickle()
        one.until(lambda: False, 2)
        expired = one.put - one.arrived()
        one.note(f"{expired} expired, and it was reported")
        one.put = one.arrived()
        return one.outcome()
