"""The page cache is filled with files that take no space."""

from __future__ import annotations

from pathlib import Path

from proofs.benchmarks.page_cache import PageCache, page_cache

MIB = 1024**2


def test_files_are_read_whole_and_take_no_space(tmp_path: Path):
    cache = PageCache(tmp_path)
    assert [cache.fill(3 * MIB, 0), cache.fill(2 * MIB, 0)] == [3 * MIB, 2 * MIB]
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == [3 * MIB, 2 * MIB]
    assert sum(path.stat().st_blocks for path in tmp_path.iterdir()) * 512 < MIB


def test_what_is_to_stay_free_is_not_filled(tmp_path: Path):
    assert PageCache(tmp_path).fill(reserve_bytes=2**60) == 0
    assert not list(tmp_path.iterdir())


def test_the_files_are_removed_at_the_end():
    with page_cache() as cache:
        cache.fill(MIB, 0)
        (path,) = cache._directory.iterdir()
    assert not path.exists()
