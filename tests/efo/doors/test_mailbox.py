"""Mailbox: calls for another thread."""

from __future__ import annotations

import pytest

from efo.doors.mailbox import Mailbox


def test_calls_are_made_in_order_with_one_wake():
    wakes, made = [], []
    mailbox = Mailbox(wakes.append)
    for number in range(3):
        mailbox.post(made.append, number)
    assert (len(wakes), made) == (1, [])
    wakes.pop()()
    assert made == [0, 1, 2]


def test_what_is_posted_meanwhile_is_called_and_what_is_posted_later_wakes_again():
    wakes, made = [], []
    mailbox = Mailbox(wakes.append)
    mailbox.post(mailbox.post, made.append, "meanwhile")
    wakes.pop(0)()
    assert made == ["meanwhile"]
    wakes.pop()()  # nothing is left to do
    mailbox.post(made.append, "later")
    assert len(wakes) == 1


def test_a_thread_that_has_ended_raises_each_time():
    def wake(_run):
        raise RuntimeError("ended")

    mailbox = Mailbox(wake)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ended"):
            mailbox.post(print)
    assert not mailbox._posted
