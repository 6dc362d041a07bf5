import itertools
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest

from efo.model import Checkpoint
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.log.segments import list_segments, read_origin, read_segment
from efo_service.relay.errors import LogOwnerError, SegmentCorruptError, SinkLockedError


def test_a_partition_has_one_writer_at_a_time(open_writer) -> None:
    writer, other = open_writer(), open_writer(shard_id="shardId-000000000001")
    with pytest.raises(SinkLockedError, match="two workers") as caught:
        open_writer()
    assert caught.value.retryable
    writer.close()
    open_writer().close()
    other.close()


def test_the_temporary_file_of_an_interrupted_commit_is_removed(open_writer, make_records, directory) -> None:
    writer = open_writer()
    writer.append(make_records(2))
    (directory / "segment-0123.tmp").write_bytes(b"half a segment")
    writer.close()
    again = open_writer()
    assert again.end == 2
    assert not list(directory.glob("*.tmp"))
    again.close()


def test_a_partition_with_a_damaged_last_segment_is_not_opened(open_writer, make_records, directory) -> None:
    writer = open_writer()
    writer.append(make_records(2))
    path = list_segments(directory)[0].path
    writer.close()
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    with pytest.raises(SegmentCorruptError, match="damaged"):
        open_writer()
    path.write_bytes(sound)
    open_writer().close()  # the failed opening has released the lock


def test_a_partition_whose_last_segment_has_a_flipped_bit_is_not_opened(open_writer, make_records, directory) -> None:
    """Only the CRC shows it: Arrow reads the segment and its metadata as before."""
    writer = open_writer()
    writer.append(make_records(2))
    (last,) = list_segments(directory)
    writer.close()
    content = last.path.read_bytes()
    last.path.write_bytes(content.replace(b"value-1", b"value-3", 1))
    with pa.ipc.open_file(str(last.path)) as reader:
        assert reader.read_all()["value"].to_pylist() == [b"value-0", b"value-3"]
    assert read_origin(last).last == writer.position
    with pytest.raises(SegmentCorruptError, match="damaged"):
        open_writer()
    last.path.write_bytes(content)
    open_writer().close()


def test_a_partition_with_records_of_another_shard_is_not_opened(open_writer, make_records, directory) -> None:
    writer, other = open_writer(), open_writer(shard_id="shardId-000000000001")
    writer.append(make_records(2))
    path = list_segments(directory)[0].path
    path.rename(directory.with_name("1") / path.name)
    writer.close()
    other.close()
    with pytest.raises(LogOwnerError, match="put it back"):
        open_writer(shard_id="shardId-000000000001")


def test_a_commit_that_is_killed_at_any_step_is_atomic(tmp_path: Path) -> None:
    """Records and position are committed together or not at all. The next commit neither loses nor repeats records."""
    script = str(Path(__file__).with_name("crash.py"))
    start, size, outcomes = 0, 10, []
    for kill_at in itertools.count(1):
        child = subprocess.run(
            [sys.executable, script, str(tmp_path), str(start), str(size), str(kill_at)],
            capture_output=True,
            text=True,
            check=False,
        )
        writer = open_partition(DiskFiles(tmp_path), "t", "s", "shard", lambda: 0.0)
        committed = writer.end > start
        assert writer.end in (start, start + size)
        if writer.end:
            assert writer.position == Checkpoint(str(10**20 + writer.end - 1))
        start = writer.end
        writer.close()
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL, child.stderr
        outcomes.append((child.stdout.strip(), committed))

    steps = [step for step, _ in outcomes]
    assert "c_call fdatasync" in steps
    assert "c_return fsync" in steps
    assert [committed for _, committed in outcomes] == [
        at >= steps.index("c_return rename") for at in range(len(steps))
    ]
    values = [
        sequence
        for segment in list_segments(tmp_path / "t" / "0")
        for sequence in read_segment(segment)[0].column("offset").to_pylist()
    ]
    assert values == list(range(start))
