import gzip
import json
import os
import subprocess
import sys

import msgspec
import pytest
import trio
from structlog.testing import capture_logs

from efo.model import Batch
from efo_service.relay.errors import RecordRefusedError, SinkFullError, SinkLockedError
from efo_service.relay.jsonlines import Rotation, open_json_lines
from tests.efo_service.relay.relaying import commit, relay_all, to

STREAM, SHARD = "orders", "shardId-000000000000"


def numbers(path) -> list[str]:
    return numbers_of(path.read_bytes())


def numbers_of(content: bytes) -> list[str]:
    return [json.loads(line)["headers"][2][1][-3:] for line in content.splitlines()]


async def put(path, *batches: Batch, **options) -> None:
    async with open_json_lines(path, **options) as sink, sink.open(STREAM, SHARD) as shard:
        for batch in batches:
            await commit(shard, batch)


async def test_a_line_has_the_documented_form(tmp_path, make_batch) -> None:
    await put(tmp_path / "a" / "lines", make_batch(1))
    assert (tmp_path / "a" / "lines").read_text() == (
        '{"key":"key-0","value":"dmFsdWUtMA==","timestamp":1700000000000,"headers":[["kinesis.stream","orders"],'
        '["kinesis.shard","shardId-000000000000"],'
        '["kinesis.sequence","49590338271490256608559692538361571095921575989136588898"],'
        '["kinesis.sub_sequence","0"]]}\n'
    )


async def test_values_can_be_written_as_utf_8_text(tmp_path, make_batch) -> None:
    await put(tmp_path / "lines", make_batch(1), encoding="utf-8")
    assert json.loads((tmp_path / "lines").read_text())["value"] == "value-0"


async def test_a_value_that_is_not_utf_8_is_refused(tmp_path, make_records) -> None:
    good, bad = make_records(2)
    bad = msgspec.structs.replace(bad, data=b"caf\xe9")
    async with open_json_lines(tmp_path / "lines", encoding="utf-8") as sink:
        async with sink.open(STREAM, SHARD) as shard:
            assert shard.refusal(good) is None
        with pytest.raises(
            RecordRefusedError, match=r"899 cannot be written .* not UTF-8: .* at byte 3.* dead_letters"
        ):
            await relay_all(to(sink), Batch("s", SHARD, (good, bad), None, 0, 0))
    assert numbers(tmp_path / "lines") == ["898"]


@pytest.mark.parametrize("torn", [b'{"key":"k', b"x", b"y" * 200_000])
async def test_an_incomplete_last_line_is_cut_off(tmp_path, make_batch, torn) -> None:
    path = tmp_path / "lines"
    await put(path, make_batch(2))
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with capture_logs() as logged:
        await put(path, make_batch(1, 2))
    assert path.read_bytes().startswith(whole)
    assert numbers(path) == ["898", "899", "900"]
    assert [(line["event"], line["bytes"]) for line in logged] == [("incomplete_line_cut_off", len(torn))]


async def test_a_file_with_only_an_incomplete_line_is_emptied(tmp_path, make_batch) -> None:
    (tmp_path / "lines").write_bytes(b"z" * 70_000)
    await put(tmp_path / "lines", make_batch(1))
    assert numbers(tmp_path / "lines") == ["898"]


async def test_a_file_has_one_writer(tmp_path) -> None:
    async with open_json_lines(tmp_path / "lines"):
        with pytest.raises(SinkLockedError, match="a separate file") as caught:
            async with open_json_lines(tmp_path / "lines"):
                pass
    assert caught.value.retryable


async def test_a_full_disk_is_reported_and_leaves_only_whole_lines(tmp_path, make_batch, monkeypatch) -> None:
    path, write = tmp_path / "lines", os.write

    def fills_up(descriptor: int, content) -> int:
        if len(content) < 200:
            raise OSError(28, "No space left on device")
        return write(descriptor, content[: len(content) // 2])

    async with open_json_lines(path) as sink:
        async with sink.open(STREAM, SHARD) as shard:
            await commit(shard, make_batch(2))
            whole = path.read_bytes()
            with monkeypatch.context() as patched:
                patched.setattr(os, "write", fills_up)
                with pytest.raises(SinkFullError, match="no space"):
                    await commit(shard, make_batch(2, 2))
        assert path.read_bytes() == whole
        async with sink.open(STREAM, SHARD) as shard:
            await commit(shard, make_batch(2, 2))
    assert numbers(path) == ["898", "899", "900", "901"]


STDOUT = """
import trio
from efo.model import Record
from efo_service.relay.jsonlines import open_json_lines

async def main():
    async with open_json_lines(None) as sink, sink.open("orders", "shard") as shard:
        await shard.commit([shard.prepare((Record("7", 1.0, b"v", "k"),))])

trio.run(main)
"""


def test_without_a_path_lines_are_written_to_stdout() -> None:
    result = subprocess.run([sys.executable, "-c", STDOUT], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["key"] == "k"


BLOCKED = """
import os, sys, trio
from efo.model import Record
from efo_service.relay.jsonlines import open_json_lines

async def main():
    async with open_json_lines(None) as sink, sink.open("orders", "shard") as shard:
        part = shard.prepare((Record("7", 1.0, bytes(1 << 20), "k"),))
        with trio.move_on_after(0.1):
            await shard.commit([part])
    os.write(2, b"ended")

trio.run(main)
"""


def test_a_reader_of_stdout_that_has_stopped_does_not_hold_up_the_end() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", BLOCKED], **pipes) as process:
        try:
            assert process.stderr.read() == b"ended"
            assert process.wait(30) == 0
        finally:
            process.kill()


async def test_a_file_that_another_program_moves_or_empties_goes_on_at_once(tmp_path, make_batch) -> None:
    path = tmp_path / "lines"
    async with open_json_lines(path) as sink, sink.open("orders", "shard") as shard:
        await commit(shard, make_batch(2))
        path.rename(tmp_path / "lines.1")
        await commit(shard, make_batch(1, 2))
        assert [len(file.read_bytes().splitlines()) for file in (tmp_path / "lines.1", path)] == [2, 1]
        os.truncate(path, 0)
        await commit(shard, make_batch(1, 3))
        assert len(path.read_bytes().splitlines()) == 1
        assert path.read_bytes()[:1] == b"{"  # and no hole before it


async def test_a_moved_file_is_left_without_a_record_too(tmp_path, autojump_clock) -> None:
    autojump_clock.autojump_threshold = 0.05  # files are written in threads
    path = tmp_path / "lines"
    async with open_json_lines(path):
        path.rename(tmp_path / "lines.1")
        await trio.sleep(2.5)
        assert path.exists()


async def test_a_file_is_rotated_at_its_limits_and_compressed(tmp_path, make_batch, autojump_clock) -> None:
    autojump_clock.autojump_threshold = 0.05  # files are written in threads
    path, rotation = tmp_path / "lines", Rotation(size=150)
    opening = open_json_lines(path, rotation=rotation, clock=lambda: 1_700_000_000.0)
    async with opening as sink, sink.open(STREAM, SHARD) as shard:
        for start in (0, 1):
            await commit(shard, make_batch(1, start))
        await trio.sleep(5)
    names = [f"lines.20231114T221320Z{suffix}.gz" for suffix in ("", "-2")]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["lines", *names])
    assert [numbers_of(gzip.decompress((tmp_path / name).read_bytes())) for name in names] == [["898"], ["899"]]
    assert path.read_bytes() == b""


async def test_a_small_file_is_rotated_when_it_is_old(tmp_path, make_batch, autojump_clock) -> None:
    autojump_clock.autojump_threshold = 0.05  # files are written in threads
    now = 1_700_000_000.0
    rotation = Rotation(seconds=60, compresses=False)
    opening = open_json_lines(tmp_path / "lines", rotation=rotation, clock=lambda: now)
    async with opening as sink, sink.open(STREAM, SHARD) as shard:
        await commit(shard, make_batch(1))
        await trio.sleep(5)
        assert [file.name for file in tmp_path.iterdir()] == ["lines"]
        now += 61
        await trio.sleep(5)
    assert numbers(tmp_path / "lines.20231114T221421Z") == ["898"]


async def test_what_an_earlier_process_rotated_is_compressed(tmp_path, autojump_clock) -> None:
    autojump_clock.autojump_threshold = 0.05  # files are written in threads
    left, other = tmp_path / "lines.20260131T120000Z", tmp_path / "lines.old"
    left.write_bytes(b"{}\n")
    other.write_bytes(b"{}\n")
    async with open_json_lines(tmp_path / "lines", rotation=Rotation(size=1)):
        await trio.sleep(2.5)
    assert gzip.decompress((tmp_path / f"{left.name}.gz").read_bytes()) == b"{}\n"
    assert (left.exists(), other.exists()) == (False, True)
