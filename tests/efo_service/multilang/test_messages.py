"""The messages of the multi-language protocol, as KCL's clients read and write them."""

import base64
import json

import pytest

from efo.model import Checkpoint, Record
from efo_service.multilang import messages
from efo_service.multilang.messages import CheckpointRequest, StatusMessage, parse


def test_records_have_kcls_fields_and_data_in_base64():
    records = [
        Record("495", 1_700_000_000.123, b"\x00\xff", "key", sub_sequence_number=3),
        Record("496", 0, b"", "key"),
    ]
    line = messages.process_records(records, 1500)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "action": "processRecords",
        "millisBehindLatest": 1500,
        "records": [
            {
                "action": "record",
                "data": base64.b64encode(b"\x00\xff").decode(),
                "partitionKey": "key",
                "sequenceNumber": "495",
                "approximateArrivalTimestamp": 1_700_000_000_123,
                "subSequenceNumber": 3,
            },
            {
                "action": "record",
                "data": "",
                "partitionKey": "key",
                "sequenceNumber": "496",
                "approximateArrivalTimestamp": 0,
                "subSequenceNumber": 0,
            },
        ],
    }


@pytest.mark.parametrize("key", ["schlüssel", "a\nb", "\u2028", "\U0001f600", None])
def test_a_line_is_ascii_whatever_the_key_is(key):
    line = messages.process_records([Record("1", 1.0, b"x", key)], 0)
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert json.loads(line)["records"][0]["partitionKey"] == key


def test_the_other_messages_are_kcls():
    assert json.loads(messages.initialize("shardId-1", Checkpoint("7", 2))) == {
        "action": "initialize",
        "shardId": "shardId-1",
        "sequenceNumber": "7",
        "subSequenceNumber": 2,
    }
    assert json.loads(messages.shutdown_requested()) == {"action": "shutdownRequested"}
    assert messages.last_action(messages.LEASE_LOST, 2) == ("leaseLost", b'{"action":"leaseLost"}\n')
    assert messages.last_action(messages.SHARD_ENDED, 2) == ("shardEnded", b'{"action":"shardEnded"}\n')


def test_clients_of_kcl_1_get_a_shutdown_with_a_reason():
    ended, lost = (messages.last_action(action, 1) for action in (messages.SHARD_ENDED, messages.LEASE_LOST))
    assert ended == ("shutdown", b'{"action":"shutdown","reason":"TERMINATE"}\n')
    assert lost == ("shutdown", b'{"action":"shutdown","reason":"ZOMBIE"}\n')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"action": "status", "responseFor": "initialize"}', StatusMessage("initialize")),
        (b'{"action": "status"}', StatusMessage(None)),
        (b'{"action": "status", "responseFor": 7}', StatusMessage(None)),
        (b'{"action":"checkpoint","sequenceNumber":"12","subSequenceNumber":3}', CheckpointRequest("12", 3)),
        (b'{"action":"checkpoint","sequenceNumber":null}', CheckpointRequest(None, None)),
        (b'{"action":"checkpoint","checkpoint":"12"}', CheckpointRequest("12", None, "checkpoint")),
        (b'{"action":"checkpoint","sequenceNumber":{"a":[1]}}', CheckpointRequest("", None)),
        (
            b'{"action":"checkpoint","sequenceNumber":"12","subSequenceNumber":' + b"[" * 900 + b"]" * 900 + b"}",
            CheckpointRequest("12", ""),
        ),
        (b"", None),
        (b"hello", None),
        (b"17", None),
        (b'"status"', None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b'{"action": "dance"}', None),
        (b'{"action": ["status"]}', None),
        (b'{"responseFor": "initialize"}', None),
        (b'{"action": "status", ', None),
        (b"[" * 100_000, None),
    ],
)
def test_lines_of_a_child_are_messages_or_noise(line, message):
    assert parse(line) == message


def test_the_answer_to_a_checkpoint_names_it_as_the_request_did():
    assert json.loads(messages.checkpointed(CheckpointRequest("12", 3), None)) == {
        "action": "checkpoint",
        "sequenceNumber": "12",
        "subSequenceNumber": 3,
        "error": None,
    }
    old = json.loads(messages.checkpointed(CheckpointRequest("12", None, "checkpoint"), "ShutdownException"))
    assert old == {"action": "checkpoint", "checkpoint": "12", "subSequenceNumber": None, "error": "ShutdownException"}
