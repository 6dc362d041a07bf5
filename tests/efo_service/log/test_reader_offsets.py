import stat

import pytest

from efo.errors import ConfigurationError
from efo_service.log.catalog import allocate_partition
from efo_service.log.disk import DiskFiles
from efo_service.log.reader_offsets import ReaderCommit, commit_reader, floor, read_readers, remove_reader


@pytest.fixture
def root(tmp_path):
    allocate_partition(DiskFiles(tmp_path), "t", "s", "shard")
    return tmp_path


def test_the_floor_is_the_lowest_offset_and_a_missing_partition_counts_as_0() -> None:
    readers = [ReaderCommit("fast", {0: 9, 1: 8}, 3.5), ReaderCommit("slow", {0: 5}, 1.5)]
    assert [floor(readers, partition) for partition in (0, 1)] == [5, 0]
    assert floor([], 0) is None


@pytest.mark.parametrize("name", ["", ".", "../catalog", "a/b", "é", "x" * 129])
def test_an_invalid_reader_name_is_rejected(root, name) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid reader name"):
        commit_reader(DiskFiles(root), "t", name, {}, 0.0)


def test_others_never_see_the_file_of_a_reader(root) -> None:
    (root / "t").chmod(0o777)
    commit_reader(DiskFiles(root), "t", "r", {0: 5}, 1.5)
    directory = root / "t" / "readers"
    assert [path.stat().st_mode & 0o007 for path in (directory, directory / "r.json")] == [0, 0]


@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_the_file_of_a_reader_is_as_private_as_the_topic(root, mode) -> None:
    (root / "t").chmod(mode)
    commit_reader(DiskFiles(root), "t", "r", {0: 5}, 1.5)
    directory = root / "t" / "readers"
    assert stat.S_IMODE(directory.stat().st_mode) == mode
    assert stat.S_IMODE((directory / "r.json").stat().st_mode) == mode & 0o660


def test_readers_are_listed_by_name_as_they_committed_and_forgotten_once(root) -> None:
    files = DiskFiles(root)
    assert read_readers(files, "t") == []
    commit_reader(files, "t", "z", {1: 2, 0: 5}, 1.5)
    commit_reader(files, "t", "a" * 128, {}, 0.0)
    assert read_readers(files, "t") == [ReaderCommit("a" * 128, {}, 0.0), ReaderCommit("z", {0: 5, 1: 2}, 1.5)]
    assert [remove_reader(files, "t", "z") for _ in range(2)] == [True, False]
    assert [reader.name for reader in read_readers(files, "t")] == ["a" * 128]


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        '{"format": 2, "offsets": {"0": 5}, "committed_at": 1.5}',
        '{"format": 1, "offsets": {"0": -5}, "committed_at": 1.5}',
        '{"format": 1, "offsets": [5], "committed_at": 1.5}',
        '{"format": 1, "offsets": {"0": 5}, "committed_at": "soon"}',
        '{"format": 1, "offsets": {"0": 5}}',
    ],
)
def test_a_reader_whose_file_is_invalid_has_read_nothing(root, content) -> None:
    commit_reader(DiskFiles(root), "t", "r", {0: 5}, 1.5)
    (root / "t" / "readers" / "r.json").write_text(content)
    assert read_readers(DiskFiles(root), "t") == [ReaderCommit("r", {}, None)]
