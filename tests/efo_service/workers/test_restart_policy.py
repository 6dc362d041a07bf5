"""Restarts and exit codes of worker processes: the decisions."""

import pytest

from efo_service.exit_codes import Exit
from efo_service.workers.restart_policy import LONG_RUN, LONGEST_PAUSE, Restarts, is_final, worst


def test_each_death_in_a_row_is_waited_for_twice_as_long_up_to_a_bound():
    restarts = Restarts()
    pauses = [restarts.pause(0.1) for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_long_run_is_forgiven():
    restarts = Restarts()
    for _ in range(6):
        restarts.pause(0.1)
    assert restarts.pause(LONG_RUN) == 1
    assert restarts.pause(0.1) == 2


@pytest.mark.parametrize(
    ("code", "has_been_ready", "final"),
    [
        (Exit.CONFIGURATION, True, True),
        (Exit.USAGE, True, True),
        (Exit.UNAVAILABLE, False, True),
        (Exit.UNAVAILABLE, True, False),
        (Exit.INTERNAL, True, False),
        (-9, True, False),
        (Exit.OK, True, False),  # somebody stopped this one alone
    ],
)
def test_what_ends_all(code, has_been_ready, final):
    assert is_final(code, has_been_ready=has_been_ready) is final


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], Exit.OK),
        ([0, 0], Exit.OK),
        ([0, 75], Exit.DRAIN_DEADLINE),
        ([75, 69, 0], Exit.UNAVAILABLE),
        ([69, 70], Exit.INTERNAL),
        ([0, -9], Exit.INTERNAL),
        ([0, -15], Exit.OK),  # asked to stop before it had begun
        ([0, 3], Exit.INTERNAL),
    ],
)
def test_the_worst_exit_code_stands_for_all(codes, expected):
    assert worst(codes) is expected
