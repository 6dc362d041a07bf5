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


def test_a_write_that_the_system_ends_early_is_continued(tmp_path, monkeypatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    storage.write_file(tmp_path / "file", [b"0123456789", pa.py_buffer(b"abcd")])
    assert (tmp_path / "file").read_bytes() == b"0123456789abcd"


def test_the_file_is_closed_if_the_disk_is_full(tmp_path, monkeypatch) -> None:
    def fail(_descriptor, _data) -> int:
        raise OSError(28, "No space left on device")

    before = open_files()
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(OSError, match="No space"):
        storage.write_file(tmp_path / "file", [b"content"])
    assert open_files() == before
