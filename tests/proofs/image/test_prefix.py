"""What is left of the steps, and how large it is."""

from __future__ import annotations

import os

from proofs.image.checks import relayed
from proofs.image.prefix import _remove_all_but, mebibytes


def test_what_other_stages_made_is_removed(tmp_path):
    for name in ("opt/efo/a", "opt/build/b", "src/c", "var/lib/efo/d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    _remove_all_but(tmp_path, [tmp_path / "opt/efo", tmp_path / "var"])
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("?") if path.is_file()) == [
        "opt/efo/a",
        "var/lib/efo/d",
    ]


def test_a_file_with_two_names_counts_once(tmp_path):
    (tmp_path / "a").write_bytes(bytes(2**20))
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "c").symlink_to("a")
    assert mebibytes(tmp_path) == 1.0


def test_records_of_a_log_are_counted_from_the_names_of_its_segments(tmp_path):
    (tmp_path / "orders").mkdir()
    for name in ("0000-0400.x.arrow", "0400-1000.y.arrow", "note.txt"):
        (tmp_path / "orders" / name).touch()
    assert relayed(tmp_path) == 1000
