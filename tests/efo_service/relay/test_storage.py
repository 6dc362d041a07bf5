import os
from pathlib import Path

import pyarrow as pa
import pytest

from efo_service.relay import storage


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_file_is_written_in_the_order_of_its_chunks_and_replaces_an_earlier_one(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"an earlier and longer content")
    storage.write_file(path, [b"one ", b"", pa.py_buffer(b"two "), memoryview(b"three")])
    assert path.read_bytes() == b"one two three"


@pytest.mark.parametrize("written", [0, 4, 10, 12, 14])
def test_a_write_that_the_system_ends_early_is_continued(tmp_path, monkeypatch, written) -> None:
    write = os.write
    monkeypatch.setattr(os, "writev", lambda descriptor, views: write(descriptor, b"".join(views)[:written]))
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    storage.write_file(tmp_path / "file", [b"0123456789", pa.py_buffer(b"abcd")])
    assert (tmp_path / "file").read_bytes() == b"0123456789abcd"


@pytest.mark.parametrize("sizes", [[10, 5, 1], [16, 16], [40, 1, 0, 3], [1] * 50])
def test_chunks_are_written_together_in_calls_of_limited_size(tmp_path, monkeypatch, sizes) -> None:
    calls: list[list[int]] = []
    writev = os.writev

    def count(descriptor: int, views: list[memoryview]) -> int:
        calls.append([len(view) for view in views])
        return writev(descriptor, views)

    monkeypatch.setattr(os, "writev", count)
    monkeypatch.setattr(storage, "_WRITE_BYTES", 16)
    monkeypatch.setattr(storage, "_MAX_VIEWS", 8)
    chunks = [bytes([number]) * size for number, size in enumerate(sizes)]
    storage.write_file(tmp_path / "file", chunks)
    assert (tmp_path / "file").read_bytes() == b"".join(chunks)
    assert all(sum(call) == 16 or len(call) == 8 for call in calls[:-1])
    assert all(sum(call) <= 16 and len(call) <= 8 for call in calls)


def test_the_file_is_closed_if_the_disk_is_full(tmp_path, monkeypatch) -> None:
    def fail(_descriptor, _data) -> int:
        raise OSError(28, "No space left on device")

    before = open_files()
    monkeypatch.setattr(os, "writev", fail)
    with pytest.raises(OSError, match="No space"):
        storage.write_file(tmp_path / "file", [b"content"])
    assert open_files() == before
