"""Mailbox: calls for another thread."""

from __future__ import annotations

from collections import deque

import pytest
import trio

from efo.adapters.mailbox import Mailbox, TrioMailbox


def test_calls_are_made_in_order_with_one_wake():
    wakes, made = [], []
    mailbox = Mailbox(wakes.append, made.append)
    for number in range(3):
        mailbox.post(made.append, number)
    assert (len(wakes), made) == (1, [])
    wakes.pop()()
    assert made == [0, 1, 2]


def test_what_is_posted_meanwhile_is_called_without_a_wake_and_what_is_posted_later_wakes_again():
    wakes, made = [], []
    mailbox = Mailbox(wakes.append, made.append)
    mailbox.post(mailbox.post, made.append, "meanwhile")
    wakes.pop(0)()
    assert (made, wakes) == (["meanwhile"], [])
    mailbox.post(made.append, "later")
    assert len(wakes) == 1


def test_a_wake_that_finds_nothing_does_not_hide_the_next_one():
    wakes, made = [], []
    mailbox = Mailbox(wakes.append, made.append)

    class Switching(deque):
        """Lets the other thread run as soon as something is appended, before the poster looks whether to wake it."""

        def append(self, posted):
            super().append(posted)
            if wakes and made != ["first", "second"]:
                wakes.pop()()

    mailbox._posted = Switching()
    mailbox.post(made.append, "first")
    mailbox.post(made.append, "second")
    assert made == ["first", "second"]
    wakes.pop()()  # of the second post, which could not know
    mailbox.post(made.append, "third")
    wakes.pop()()
    assert made == ["first", "second", "third"]


def test_a_thread_that_has_ended_raises_each_time():
    def wake(_run):
        raise RuntimeError("ended")

    mailbox = Mailbox(wake, print)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ended"):
            mailbox.post(print)
    assert not mailbox._posted


def fail():
    raise ValueError("a mistake")


def test_what_a_call_raises_is_reported_and_the_others_are_made():
    wakes, made = [], []
    mailbox = Mailbox(wakes.append, made.append)
    mailbox.post(fail)
    mailbox.post(made.append, "next")
    wakes.pop()()
    assert isinstance(made[0], ValueError)
    assert made[1:] == ["next"]


def interrupt(*_):
    raise KeyboardInterrupt


def test_after_an_interrupted_post_and_an_interrupted_call_nothing_waits_for_ever():
    wakes, made = [interrupt], []
    mailbox = Mailbox(lambda run: wakes.pop()() if wakes == [interrupt] else wakes.append(run), made.append)
    with pytest.raises(KeyboardInterrupt):
        mailbox.post(made.append, "interrupted")
    mailbox.post(interrupt)
    mailbox.post(made.append, "next")
    with pytest.raises(KeyboardInterrupt):
        wakes.pop(0)()
    wakes.pop()()
    assert made == ["interrupted", "next"]
    mailbox.post(made.append, "later")
    assert len(wakes) == 1


def asleep(mailbox):
    """Let it see what trio reports before it waits for I/O."""
    mailbox.before_io_wait(1.0)


def test_trio_is_woken_once_while_it_sleeps_and_not_while_it_is_at_work():
    wakes, made = [], []
    mailbox = TrioMailbox(wakes.append, made.append)

    async def main():
        mailbox.open()
        await trio.lowlevel.checkpoint()
        mailbox.post(made.append, 1)
        assert (made, wakes) == ([], [])
        await trio.lowlevel.checkpoint()
        assert (made, wakes) == ([1], [])
        asleep(mailbox)
        mailbox.post(made.append, 2)
        mailbox.post(made.append, 3)
        assert (made, len(wakes)) == ([1], 1)
        await trio.lowlevel.checkpoint()
        assert made == [1, 2, 3]
        mailbox.post(made.append, 4)
        asleep(mailbox)  # it was posted to a thread at work, which now sleeps
        assert len(wakes) == 2
        mailbox.close()
        assert made == [1, 2, 3, 4]

    trio.run(main)
    mailbox.post(made.append, 5)
    assert len(wakes) == 3  # from now on trio itself refuses it, or not


def test_the_application_is_woken_once_at_the_end_of_a_step_and_a_failure_of_that_is_reported():
    wakes, rung = [], []
    mailbox = TrioMailbox(wakes.append, rung.append)

    def ring():
        rung.append("ring")

    async def main():
        mailbox.open()
        for function in (ring, ring, fail):
            mailbox.at_end_of_step(function)
        assert rung == []
        asleep(mailbox)
        assert (rung, len(wakes)) == (["ring"], 1)  # trio must not sleep over the failure
        await trio.lowlevel.checkpoint()
        mailbox.close()

    trio.run(main)
    (_, failure) = rung
    assert isinstance(failure, ValueError)
    mailbox.at_end_of_step(ring)
    assert rung[2:] == ["ring"]
