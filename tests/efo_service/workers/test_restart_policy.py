"""When worker processes are restarted, and which exit code represents them."""

import pytest

from efo_service.exit_codes import Exit
from efo_service.workers.supervisor import combined_exit_code, stops_all


@pytest.mark.parametrize(
    ("code", "has_been_ready", "expected"),
    [
        (Exit.CONFIGURATION, True, True),
        (Exit.USAGE, True, True),
        (Exit.UNAVAILABLE, False, True),
        (Exit.UNAVAILABLE, True, False),
        (Exit.INTERNAL, True, False),
        (-9, True, False),
        (Exit.OK, True, False),  # an operator stopped this worker alone
    ],
)
def test_a_permanent_error_or_an_end_before_any_worker_was_ready_stops_all(code, has_been_ready, expected):
    assert stops_all(code, has_been_ready=has_been_ready) is expected


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], Exit.OK),
        ([0, 0], Exit.OK),
        ([0, 75], Exit.DRAIN_DEADLINE),
        ([75, 69, 0], Exit.UNAVAILABLE),
        ([69, 70], Exit.INTERNAL),
        ([0, -9], Exit.INTERNAL),
        ([0, -15], Exit.OK),  # stopped before it handled signals
        ([0, 3], Exit.INTERNAL),
    ],
)
def test_the_most_severe_exit_code_represents_all(codes, expected):
    assert combined_exit_code(codes) is expected
