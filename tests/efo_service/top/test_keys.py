"""The key that ends `efo top`."""

from __future__ import annotations

import os
import termios

import pytest

from efo_service.top import drawing
from efo_service.top.drawing import quit_key


@pytest.fixture
def terminal():
    """Return the file descriptor of a keyboard, and the stdin that it types into."""
    keyboard, stdin = os.openpty()
    with os.fdopen(keyboard, "wb", buffering=0), os.fdopen(stdin) as file:
        yield keyboard, file


def test_q_ends_the_wait_and_the_terminal_is_as_before(terminal):
    keyboard, stdin = terminal
    before = termios.tcgetattr(stdin)
    with quit_key(stdin) as wait:
        assert not termios.tcgetattr(stdin)[3] & (termios.ECHO | termios.ICANON)
        os.write(keyboard, b"xq")
        assert wait(600)
    assert termios.tcgetattr(stdin) == before


def test_other_keys_do_not_end_it(terminal):
    keyboard, stdin = terminal
    with quit_key(stdin) as wait:
        os.write(keyboard, b"x")
        assert not wait(0)


def test_a_stdin_that_is_no_terminal_has_no_keys(tmp_path):
    with (tmp_path / "q").open("w+") as file, quit_key(file) as wait:
        assert not wait(0)
    with quit_key(None) as wait:
        assert not wait(0)


class Calls:
    """Stands for `time` and `select`: time passes in their calls alone, and the fourth call is interrupted."""

    def __init__(self):
        self.now, self.lasted = 0.0, []

    def monotonic(self):
        return self.now

    def select(self, _reading, _writing, _failing, seconds):
        self.sleep(seconds)
        return [], [], []

    def sleep(self, seconds):
        self.now += seconds
        self.lasted.append(seconds)
        if len(self.lasted) == 4:
            raise KeyboardInterrupt


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_interrupt_just_before_a_call_is_seen_soon(terminal, is_terminal, monkeypatch):
    calls = Calls()
    monkeypatch.setattr(drawing, "time", calls)
    monkeypatch.setattr(drawing, "select", calls)
    with quit_key(terminal[1] if is_terminal else None) as wait, pytest.raises(KeyboardInterrupt):
        wait(600)
    assert len(calls.lasted) == 4
    assert max(calls.lasted) < 1
