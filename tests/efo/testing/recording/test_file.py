from __future__ import annotations

import os

import pytest

from efo.errors import ConfigurationError
from efo.testing import FakeKinesis
from efo.testing.recording.file import Recording


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "first line must be"),
        (b'{"stream":"s"}\n', "first line must be"),
        ('{"capture":2}\n'.encode("utf-16"), "is no recording: it is UTF-16 text"),
        (b'{"capture":3}\n', "has version 3: this efo reads versions 1 to 2"),
        (b'{"capture":1}\nno json\n', "line 2"),
        (b'{"capture":1}\n{"call":1,"at":0,"fault":{"kind":"unknown"}}\n', "line 2.*unknown"),
        (b'{"capture":1}\n{"stream":"s","shards":[]}\n', "stream s cannot be created"),
        (
            b'{"capture":1}\n{"stream":"s","shards":[{"id":"shardId-000000000009","start":"0","end":"1","parents":["x"]}]}',
            "stream s cannot be created",
        ),
        (
            b'{"capture":1}\n{"stream":"s","shards":[{"id":"one","start":"0","end":"9","parents":[]}]}',
            "no valid id",
        ),
        (
            b'{"capture":1}\n{"stream":"s","shards":[{"id":"shardId-000000000000","start":"7","end":"9","parents":[]}]}',
            "do not have each hash key once",
        ),
    ],
)
async def test_an_invalid_recording_is_rejected(content, message, tmp_path, autojump_clock):
    path = tmp_path / "recording.jsonl"
    path.write_bytes(content)
    async with FakeKinesis() as fake:
        with pytest.raises(ConfigurationError, match=message):
            fake.replay(path)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    path = tmp_path / "recording.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"capture":2}\r\n{"call":1,"data":"AAAA"}\r\n')
    with Recording.open(path) as recording:
        [[line]] = recording.calls.values()
    assert line.data == b"\0\0\0"


def test_a_line_that_a_killed_recording_did_not_complete_is_ignored(tmp_path):
    path = tmp_path / "recording.jsonl"
    path.write_bytes(b'{"capture":2}\n{"call":1,"data":"AAAA"}\n{"call":1,"at":1.5,"da')
    with Recording.open(path) as recording:
        [[line]] = recording.calls.values()
    assert line.data == b"\0\0\0"


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 1000)])
def test_a_file_that_changes_while_it_is_replayed_is_an_error(tmp_path, change):
    path = tmp_path / "recording.jsonl"
    path.write_bytes(b'{"capture":2}\n' + b'{"call":1,"data":"AAAA"}\n' * 10_000)
    with Recording.open(path) as recording:
        [lines] = recording.calls.values()
        assert (len(lines), lines[0], len(lines[7:9])) == (10_000, lines[-1], 2)
        change(path)
        with pytest.raises(ConfigurationError, match=r"recording\.jsonl was changed while it is replayed"):
            lines[9000]


async def test_a_file_that_cannot_be_opened_is_a_configuration_error(tmp_path, autojump_clock):
    async with FakeKinesis() as fake:
        with pytest.raises(ConfigurationError, match="No such file"):
            fake.replay(tmp_path / "missing")
        with pytest.raises(ConfigurationError, match="cannot be written"), fake.record(tmp_path):
            pass


def test_a_pipe_is_refused_at_once_although_nobody_writes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ConfigurationError, match="a recording is read again and again: pass a file"):
            Recording.open(path)
