"""The key that ends `efo top`."""

from __future__ import annotations

import os
import termios

import pytest

from efo_service.top.keys import quit_key


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
