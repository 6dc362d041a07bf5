import pytest

from efo.errors import ConfigurationError
from efo_service.relay.log.catalog import allot_partition
from efo_service.relay.log.reader_offsets import ReaderCommit, commit_reader, floor, read_readers


@pytest.fixture
def root(tmp_path):
    allot_partition(tmp_path, "t", "s", "shard")
    return tmp_path


def test_a_reader_is_where_it_last_said(root) -> None:
    assert read_readers(root, "t") == []
    commit_reader(root, "t", "slow", {0: 5}, 1.5)
    commit_reader(root, "t", "fast", {1: 7, 0: 9}, 2.5)
    commit_reader(root, "t", "fast", {1: 8, 0: 9}, 3.5)
    fast, slow = read_readers(root, "t")
    assert (fast, slow) == (ReaderCommit("fast", {0: 9, 1: 8}, 3.5), ReaderCommit("slow", {0: 5}, 1.5))
    assert [path.name for path in sorted((root / "t" / "readers").iterdir())] == ["fast.json", "slow.json"]


def test_the_floor_is_the_slowest_readers_and_an_unnamed_partition_is_at_its_start() -> None:
    readers = [ReaderCommit("fast", {0: 9, 1: 8}, 3.5), ReaderCommit("slow", {0: 5}, 1.5)]
    assert [floor(readers, partition) for partition in (0, 1)] == [5, 0]
    assert floor([], 0) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 2, "offsets": {"0": 9}, "committed_at": 1}', b'{"format": 1}', b"\xff"]
)
def test_what_cannot_be_understood_holds_everything_back(root, content) -> None:
    commit_reader(root, "t", "r", {0: 5}, 1.5)
    (root / "t" / "readers" / "r.json").write_bytes(content)
    readers = read_readers(root, "t")
    assert readers == [ReaderCommit("r", {}, None)]
    assert floor(readers, 0) == 0


@pytest.mark.parametrize("name", ["", ".", "../catalog", "a/b", "é", "x" * 129])
def test_names_that_cannot_be_readers(root, name) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a reader's name"):
        commit_reader(root, "t", name, {}, 0.0)
