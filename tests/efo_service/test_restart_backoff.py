"""The delay before a restart."""

from __future__ import annotations

from efo_service.restart_backoff import MAX_DELAY, STABLE_AFTER, RestartBackoff


def test_the_delay_doubles_with_each_short_run_up_to_a_maximum():
    backoff = RestartBackoff()
    delays = [backoff.next_delay(0.1) for _ in range(8)]
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30]
    assert delays[-1] == MAX_DELAY


def test_a_long_run_resets_the_delay():
    backoff = RestartBackoff()
    for _ in range(6):
        backoff.next_delay(0.1)
    assert backoff.next_delay(STABLE_AFTER) == 1
    assert backoff.next_delay(0.1) == 2
