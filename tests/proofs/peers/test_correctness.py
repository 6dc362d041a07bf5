from __future__ import annotations

import pytest

from proofs.peers.correctness import Findings, compare

PUT = [("a", 0), ("b", 1), ("a", 2), ("b", 3), ("a", 4)]


@pytest.mark.parametrize(
    ("seen", "findings"),
    [
        (PUT, Findings(0, 0, 0)),
        ([("b", 1), ("b", 3), ("a", 0), ("a", 2), ("a", 4)], Findings(0, 0, 0)),  # only a key's order matters
        (PUT[:-1], Findings(1, 0, 0)),
        ([*PUT, ("a", 2), ("a", 4)], Findings(0, 2, 0)),  # repeated in order, as after a crash
        ([("a", 2), ("a", 0), ("b", 1), ("b", 3), ("a", 4)], Findings(0, 0, 1)),
        ([("a", 4), ("a", 0), ("a", 2), ("b", 1), ("b", 3)], Findings(0, 0, 2)),
        ([], Findings(5, 0, 0)),
    ],
)
def test_lost_repeated_and_disordered_records_are_counted(seen, findings):
    assert compare(seen, PUT) == findings
