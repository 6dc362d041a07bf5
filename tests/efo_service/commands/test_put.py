"""`efo put` as an operator uses it, on a served fake."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import trio

import efo
from efo.testing import ALWAYS, FakeKinesis, FakeKinesisThread, When
from efo.testing.faults.kinds import Refuse
from efo_service.cli import call
from efo_service.errors import UsageError
from efo_service.exit_codes import Exit
from efo_service.operations.put import PutProgress, parser, put_lines
from tests.environment import use_fake
from tests.paths import ROOT


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread() as fake:
        yield fake


@pytest.fixture(autouse=True)
def environment(kinesis, monkeypatch):
    use_fake(monkeypatch, kinesis)


@pytest.fixture
def stream(kinesis, request):
    name = re.sub(r"\W", "-", request.node.name)[:100]
    kinesis.create_stream(name, 2)
    return name


@pytest.fixture
def stdin(monkeypatch):
    def give(content: bytes):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    return give


def stored(kinesis, stream):
    return sorted((r.partition_key, r.data) for records in kinesis.records(stream).values() for r in records)


def test_each_line_of_stdin_is_a_record_with_a_key_of_its_own(kinesis, stream, stdin, capsys):
    stdin(b"one\r\ntwo\n\nthree")
    assert call(["put", stream, "--json"]) == Exit.OK
    found = stored(kinesis, stream)
    assert sorted(data for _, data in found) == [b"one", b"three", b"two"]
    assert len({key for key, _ in found}) == 3
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert (summary["records"], summary["stored"], summary["failed"], summary["data_bytes"]) == (3, 3, 0, 11)
    assert summary["empty_lines"] == 1
    assert "3 records put, 3 stored; empty lines left out: 1" in shown.err


def test_an_empty_input_is_said_to_be_empty(kinesis, stream, stdin, capsys):
    stdin(b"")
    assert call(["put", stream, "--format", "file"]) == Exit.OK
    assert "0 records put, 0 stored; empty lines left out: 1" in capsys.readouterr().err
    assert stored(kinesis, stream) == []


def test_a_file_of_lines_with_keys_in_a_field(kinesis, stream, tmp_path, capsys):
    lines = b'{"customer":"a","n":1}\n{"customer":7,"n":2}\n'
    (tmp_path / "orders.jsonl").write_bytes(lines)
    assert call(["put", stream, str(tmp_path / "orders.jsonl"), "--key-field", "customer", "--ordered"]) == Exit.OK
    assert stored(kinesis, stream) == [("7", b'{"customer":7,"n":2}'), ("a", b'{"customer":"a","n":1}')]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("options", "line"), [([], "one"), (["--format", "json"], '{"key":"k","value":"b25l"}')])
def test_a_byte_order_mark_is_no_part_of_the_first_line(kinesis, stream, stdin, options, line):
    stdin(b"\xef\xbb\xbf" + line.encode() + b"\r\n")
    assert call(["put", stream, *options]) == Exit.OK
    assert [data for _, data in stored(kinesis, stream)] == [b"one"]


@pytest.mark.parametrize("options", [[], ["--format", "json"], ["--key-field", "id"]])
def test_text_that_is_not_utf8_is_refused_by_its_encoding(kinesis, stream, stdin, capsys, options):
    stdin('{"id":"a"}\n'.encode("utf-16"))
    assert call(["put", stream, *options]) == Exit.USAGE
    assert "the text is UTF-16: convert it to UTF-8, or send it whole with --format file" in capsys.readouterr().err
    assert stored(kinesis, stream) == []


def test_a_whole_file_has_its_byte_order_mark(kinesis, stream, tmp_path):
    (tmp_path / "text").write_bytes(b"\xff\xfea\0")
    assert call(["put", stream, str(tmp_path / "text"), "--format", "file"]) == Exit.OK
    assert [data for _, data in stored(kinesis, stream)] == [b"\xff\xfea\0"]


def test_a_whole_file_is_one_record(kinesis, stream, tmp_path):
    (tmp_path / "picture").write_bytes(b"a\nb\n\0")
    assert call(["put", stream, str(tmp_path / "picture"), "--format", "file", "--key", "k"]) == Exit.OK
    assert stored(kinesis, stream) == [("k", b"a\nb\n\0")]


def test_what_tail_writes_can_be_put_again(kinesis, stream, stdin, capsys):
    kinesis.put(stream, "a", b"\0\xff")
    kinesis.put(stream, "b", b"text")
    assert call(["tail", stream, "--from", "trim_horizon", "--until", "now", "--json"]) == Exit.OK
    stdin(capsys.readouterr().out.encode())
    assert call(["put", stream, "--format", "json", "--aggregate"]) == Exit.OK
    assert call(["tail", stream, "--from", "trim_horizon", "--limit", "4", "--json"]) == Exit.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted((line["key"], base64.b64decode(line["value"])) for line in lines) == 2 * [("a", b"\0\xff")] + 2 * [
        ("b", b"text")
    ]


def test_values_may_be_text_and_keys_explicit(kinesis, stream, stdin):
    stdin(b'{"key":"k","value":"\xc3\xa4","explicit_hash_key":"0"}\n')
    assert call(["put", stream, "--format", "json", "--encoding", "utf-8"]) == Exit.OK
    [first, _] = kinesis.records(stream).values()
    assert [(record.partition_key, record.data) for record in first] == [("k", "ä".encode())]


@pytest.fixture
def auto(kinesis, request):
    name = re.sub(r"\W", "-", f"{request.node.name}-auto")[-100:]
    kinesis.create_stream(name, 2, distribution="AUTO")
    return name


def test_on_an_auto_stream_records_have_no_key_unless_one_is_given(kinesis, auto, stdin):
    stdin(b"one\ntwo\n")
    assert call(["put", auto]) == Exit.OK
    stdin(b"three\n")
    assert call(["put", auto, "--key", "k"]) == Exit.OK
    found = [(record.partition_key, record.data) for records in kinesis.records(auto).values() for record in records]
    assert sorted(found, key=lambda pair: pair[1]) == [(None, b"one"), ("k", b"three"), (None, b"two")]


@pytest.mark.parametrize("option", ["--aggregate", "--ordered"])
def test_an_auto_stream_takes_neither_aggregates_nor_an_order(kinesis, auto, stdin, capsys, option):
    stdin(b"one\n")
    assert call(["put", auto, option]) == Exit.CONFIGURATION
    assert f"{option[2:]}=True: stream {auto} has the record distribution strategy AUTO" in capsys.readouterr().err


def test_what_tail_writes_of_an_auto_stream_can_be_put_again(kinesis, auto, stream, stdin, capsys):
    kinesis.put(auto, None, b"none")
    kinesis.put(auto, "k", b"key")
    assert call(["tail", auto, "--from", "trim_horizon", "--until", "now", "--json"]) == Exit.OK
    lines = capsys.readouterr().out.encode()
    stdin(lines)
    assert call(["put", auto, "--format", "json"]) == Exit.OK
    found = [(record.partition_key, record.data) for records in kinesis.records(auto).values() for record in records]
    assert sorted(found, key=lambda pair: pair[1]) == 2 * [("k", b"key")] + 2 * [(None, b"none")]
    stdin(lines)
    assert call(["put", stream, "--format", "json"]) == Exit.USAGE
    assert "partition_key is missing: stream" in capsys.readouterr().err
    stdin(lines)
    assert call(["put", stream, "--format", "json", "--key", "all"]) == Exit.OK


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        (["--key-field", "id"], b'{"id":"a"}\nnonsense\n', "line 2 is no JSON object"),
        (["--key-field", "id"], b'{"id":"a"}\n{"id":"\xe9"}\n', "line 2 is no JSON object: it is not UTF-8 text"),
        (["--key-field", "id"], b'{"id":"a"}\n{"other":1}\n', "line 2: the field 'id' has no text and no integer"),
        (["--format", "json"], b'{"key":"a","value":"YQ=="}\n{"key":"a"}\n', "line 2: expected an object with"),
        (
            ["--format", "json"],
            b'{"key":"a","value":"YQ=="}\n{"key":"a","value":"?"}\n',
            "line 2: the value is not base",
        ),
        (["--format", "json"], b'{"key":"a","value":"YQ=="}\n{"key":"","value":""}\n', "line 2: the field 'key'"),
        ([], b"a\n" + b"x" * 1_100_000 + b"\n", "line 2: the record has 11000"),
        (
            ["--format", "json"],
            b'{"key":"a","value":"YQ=="}\n{"key":"a","value":"","explicit_hash_key":"x"}\n',
            "line 2: explicit_hash_key: expected",
        ),
    ],
)
def test_a_line_that_is_no_record_is_named_and_those_before_it_are_put(
    kinesis, stream, stdin, capsys, options, content, message
):
    stdin(content)
    assert call(["put", stream, *options]) == Exit.USAGE
    assert message in capsys.readouterr().err
    assert len(stored(kinesis, stream)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--key", "a", "--key-field", "b"], "exclude each other"),
        (["--key-field", "b", "--format", "json"], "--key-field reads lines"),
        (["--rate", "0"], "Must be > 0"),
        (["absent-file"], "absent-file cannot be read"),
    ],
)
def test_wrong_options_are_usage_errors(stream, capsys, options, message):
    assert call(["put", stream, *options]) == Exit.USAGE
    shown = capsys.readouterr()
    assert message in shown.err + shown.out


def test_an_absent_stream_is_unavailable(stdin, capsys):
    stdin(b"x\n")
    assert call(["put", "absent"]) == Exit.UNAVAILABLE
    assert "absent" in capsys.readouterr().err


async def test_records_that_are_not_stored_are_counted(autojump_clock):
    progress = PutProgress()
    async with FakeKinesis() as fake:
        fake.create_stream("orders", 1)
        fake.faults.add(Refuse("AccessDeniedException"), When(operation="PutRecords", times=ALWAYS))
        parse = parser("lines", key="k", key_field=None, encoding="base64", other_key=str)
        with pytest.raises(efo.errors.DeliveryError):
            async with efo.open_producer(fake.kinesis("orders"), observer=progress) as producer:
                await put_lines(producer, io.BytesIO(b"a\nb"), parse, progress)
    assert (progress.taken, progress.stored, progress.failed) == (2, 0, 2)
    assert "AccessDenied" in progress.reason


async def test_the_rate_is_kept(autojump_clock):
    progress = PutProgress()
    async with FakeKinesis() as fake:
        fake.create_stream("orders", 1)
        parse = parser("lines", key="k", key_field=None, encoding="base64", other_key=str)
        async with efo.open_producer(fake.kinesis("orders"), observer=progress) as producer:
            began = trio.current_time()
            await put_lines(producer, io.BytesIO(b"x\n" * 100), parse, progress, rate=10.0)
            # Not faster. A thread reads the lines, and virtual time may jump meanwhile: so no upper limit.
            assert trio.current_time() - began >= 9.8
    assert progress.stored == 100


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_it_store_what_was_read(kinesis, stream, signal_number):
    command = [sys.executable, "-m", "efo_service.cli", "put", stream, "--key", "k"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        while not stored(kinesis, stream):
            assert process.poll() is None
        process.stdin.write(b"two\nthree")
        process.stdin.flush()
        while len(stored(kinesis, stream)) < 2:
            assert process.poll() is None
        process.send_signal(signal_number)
        assert process.wait(60) == Exit.INTERRUPTED
        assert b"2 records put, 2 stored" in process.stderr.read()


def test_a_stdin_that_does_not_block_is_read_to_its_end(kinesis, stream):
    """Whoever shares the pipe may have set O_NONBLOCK: a read of an empty one is then no end of file."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    command = [sys.executable, "-m", "efo_service.cli", "put", stream, "--key", "k"]
    with subprocess.Popen(command, cwd=ROOT, stdin=ours, stderr=subprocess.PIPE) as process:
        os.close(ours)
        for count, line in enumerate((b"one\n", b"two\n", b"three\n"), start=1):
            os.write(theirs, line)
            while len(stored(kinesis, stream)) < count:
                assert process.poll() is None
        os.close(theirs)
        assert process.wait(60) == Exit.OK
        assert b"3 records put, 3 stored" in process.stderr.read()


async def test_lines_before_a_wrong_one_are_put_however_long_that_takes(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("orders")
        source = io.BytesIO(b'{"id":"a"}\n' * 10_000 + b"nonsense\n")
        parse = parser("lines", key=None, key_field="id", encoding="base64", other_key=str)
        with pytest.raises(UsageError, match="line 10001"):
            async with efo.open_producer(fake.kinesis("orders")) as producer:
                await put_lines(producer, source, parse, PutProgress())
        [records] = fake.records("orders").values()
        assert len(records) == 10_000
