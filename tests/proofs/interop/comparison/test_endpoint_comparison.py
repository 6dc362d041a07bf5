from __future__ import annotations

import json
import math
import os

import pytest
import trio

from efo.testing import FakeKinesis, FakeKinesisThread, FakeSettings, FaultScript, When
from efo.testing.faults import Refuse
from proofs.interop.comparison import __main__ as command
from proofs.interop.comparison.comparison import Difference, comparable, differences
from proofs.interop.comparison.endpoints import SETTINGS, fake_caller
from proofs.interop.comparison.runner import Outcome, UnreachableError, compare

NAME = "efo-comparison-0"
AWS = "https://kinesis.eu-central-1.amazonaws.com"


class Messages(list):
    def __call__(self, message):
        self.append(message)


class Endpoint:
    """A fake that is compared with another one. `faults`: what it does differently."""

    def __init__(self, settings=SETTINGS):
        self.faults = FaultScript()
        self.fake = FakeKinesis(settings=settings, faults=self.faults)
        self.progress = Messages()
        self.left = None

    async def compared(self, scope=None):
        async with fake_caller(clock=None) as ours, fake_caller(self.fake) as theirs:
            try:
                return await compare(ours, theirs, NAME, self.progress, scope)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(SETTINGS.stream_deleting)
                    self.left = (await theirs.ask("ListStreams"))["StreamNames"]


@pytest.fixture
def endpoint():
    return Endpoint()


async def test_the_fake_does_not_differ_from_itself(endpoint, autojump_clock):
    outcome = await endpoint.compared()
    assert (outcome.differences, outcome.left, endpoint.left) == ([], [], [])
    assert outcome.calls > 90


async def test_an_endpoint_whose_states_last_a_moment_does_not_differ(autojump_clock):
    """As those of `efo fake`: then each subscription still comes five seconds after the one before."""
    assert (await Endpoint(FakeSettings()).compared()).differences == []


async def test_a_planted_difference_is_found(endpoint, autojump_clock):
    refused = Refuse("InvalidArgumentException", "no", 400)
    endpoint.faults.add(refused, When(operation="IncreaseStreamRetentionPeriod", nth=1))
    call = "Increase retention from 24 to 24 hours"
    assert (await endpoint.compared()).differences == [
        Difference(call, "status", "200", "400"),
        Difference(call, "body", "(missing)", "{'__type': 'InvalidArgumentException', 'message': 'no'}"),
    ]


async def test_the_streams_are_deleted_if_the_run_is_cancelled(endpoint, autojump_clock):
    scope = trio.CancelScope(deadline=trio.current_time() + 40)
    await endpoint.compared(scope)
    assert scope.cancelled_caught
    assert endpoint.left == []
    assert endpoint.progress == []


async def test_a_stream_that_cannot_be_deleted_is_named(endpoint, autojump_clock):
    endpoint.faults.add(Refuse("AccessDeniedException", "no", 400), When(operation="DeleteStream", times=math.inf))
    outcome = await endpoint.compared()
    assert outcome.left == endpoint.left == [NAME, f"{NAME}-scaled"]
    assert f"aws kinesis delete-stream --enforce-consumer-deletion --stream-name {NAME}" in endpoint.progress[0]


async def test_an_endpoint_that_lists_no_streams_is_not_used(endpoint, autojump_clock):
    endpoint.faults.add(Refuse("AccessDeniedException", "not you", 400), When(operation="ListStreams", nth=1))
    with pytest.raises(UnreachableError, match="not you"):
        await endpoint.compared()
    assert endpoint.left == []


def test_what_differs_on_every_endpoint_is_not_compared():
    def response(number, account, order):
        return {
            "status": 200,
            "body": {
                "SequenceNumber": number,
                "StreamCreationTimestamp": float(number),
                "StreamARN": f"arn:{account}",
                "Policy": None,
                "message": "2 validation errors detected: " + "; ".join(order),
            },
        }

    ours = comparable(response("1", "123", ["a", "b"]), {"123": "ACCOUNT"})
    theirs = comparable(response("2", "456", ["b", "a"]), {"456": "ACCOUNT"})
    assert differences({"call": ours}, {"call": theirs}) == []
    changed = comparable(response("2", "457", ["b", "c"]), {"456": "ACCOUNT"})
    assert [difference.member for difference in differences({"call": ours}, {"call": changed})] == [
        "body.StreamARN", "body.message"
    ]  # fmt: skip


def test_an_account_of_zeros_is_not_replaced_in_shard_ids():
    body = {"ShardId": "shardId-000000000000", "StreamARN": "arn:aws:kinesis:r:000000000000:stream/s-x"}
    assert comparable({"body": body}, {"000000000000": "ACCOUNT", "s": "STREAM"})["body"] == {
        "ShardId": "shardId-000000000000",
        "StreamARN": "arn:aws:kinesis:r:ACCOUNT:stream/STREAM-x",
    }


def test_lists_of_different_lengths_differ_by_length_and_in_their_common_items():
    ours, theirs = {"a": [1, 2, 3]}, {"a": [1, 4]}
    assert [(d.member, d.fake, d.endpoint) for d in differences({"c": ours}, {"c": theirs})] == [
        ("length of a", "3", "2"),
        ("a[1]", "2", "4"),
    ]


def test_a_call_that_only_one_side_made_differs():
    assert differences({"a": {"status": 200}}, {}) == [Difference("a", "(response)", "{'status': 200}", "(missing)")]


class TestCommand:
    @pytest.fixture
    def run(self, monkeypatch, capsys):
        """Return a function that runs the command with this outcome, and returns its exit status and stdout."""

        def run(outcome, *arguments):
            async def outcome_of(*_arguments):
                return outcome

            monkeypatch.setattr(command, "compare", outcome_of)
            with FakeKinesisThread() as fake:
                status = command.main([fake.url, "--ca-file", str(fake.ca_file), *arguments])
            return status, capsys.readouterr().out.splitlines()

        return run

    def test_without_differences_the_status_is_zero(self, run):
        status, lines = run(Outcome(95, [], []))
        assert status == 0
        assert len(lines) == 1
        summary = json.loads(lines[0])
        assert (summary["calls"], summary["differences"], summary["different"]) == (95, 0, [])

    def test_differences_are_a_table_and_a_line_of_json(self, run):
        found = [Difference("put", "status", "200", "400"), Difference("put", "body", "None", "x" * 100)]
        status, lines = run(Outcome(95, found, []))
        assert status == 1
        assert lines[0].split() == ["call", "member", "fake", "endpoint"]
        assert lines[1].split() == ["put", "status", "200", "400"]
        assert (json.loads(lines[-1])["differences"], json.loads(lines[-1])["different"]) == (2, ["put"])

    def test_a_stream_that_is_left_is_a_failure(self, run):
        status, lines = run(Outcome(95, [], ["efo-comparison-1"]))
        assert (status, json.loads(lines[-1])["left"]) == (1, ["efo-comparison-1"])

    def test_an_endpoint_that_does_not_answer_is_unavailable(self, capsys):
        assert command.main(["http://127.0.0.1:9"]) == os.EX_UNAVAILABLE
        assert "http://127.0.0.1:9 cannot be used" in capsys.readouterr().err

    @pytest.mark.parametrize(("arguments", "text"), [([AWS], "--accept-cost"), (["kinesis"], "is no URL")])
    def test_a_wrong_command_line_is_explained(self, arguments, text, capsys):
        with pytest.raises(SystemExit) as caught:
            command.main(arguments)
        assert caught.value.code == os.EX_USAGE
        assert text in capsys.readouterr().err

    def test_the_help_has_the_cost_and_an_example(self, capsys):
        with pytest.raises(SystemExit):
            command.main(["--help"])
        out = capsys.readouterr().out
        assert "less than 1 US dollar" in out
        assert f"example: python -m proofs.interop.comparison {AWS} --accept-cost" in out
