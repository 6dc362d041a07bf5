"""The pictures of terminals: what stays on the screen is drawn, and nothing is fetched from elsewhere."""

from __future__ import annotations

import os
import subprocess

import pytest

from tools import terminal_pictures as pictures
from tools.docs.site import requests_elsewhere


@pytest.mark.parametrize(
    ("output", "left"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("first\rsecond\r\n", "second\n"),
        ("50 %\r99 %\r\n\x1b[1A\x1b[2Kdone\r\n", "done\n"),
        ("\x1b[?25l\x1b[32mgreen\x1b[0m\x1b[?25h", "\x1b[32mgreen\x1b[0m"),
    ],
)
def test_what_was_overwritten_is_gone_and_colours_stay(output, left):
    assert pictures.without_control(output) == left


def test_a_command_is_recorded_in_a_terminal_of_its_width(tmp_path):
    assert pictures.recorded("stty size", tmp_path, dict(os.environ)) == f"60 {pictures.WIDTH}\r\n"


def test_the_directory_is_not_shown(tmp_path):
    assert pictures.recorded("pwd", tmp_path, dict(os.environ)) == "/srv/orders\r\n"


def test_a_command_that_fails_is_an_error(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        pictures.recorded("false", tmp_path, dict(os.environ))


def test_a_picture_has_the_command_and_its_colours_and_no_font_from_elsewhere(tmp_path):
    svg = pictures.picture("top", "\x1b[31mred\x1b[0m & <plain>\r\n")
    assert "efo&#160;top&#160;--config" in svg
    assert "red" in svg
    assert "font-face" not in svg
    (tmp_path / "top.svg").write_text(svg)
    assert requests_elsewhere(tmp_path) == []


@pytest.mark.parametrize("name", pictures.COMMANDS)
def test_each_picture_is_there_and_shows_nothing_of_the_machine(name):
    svg = (pictures.PICTURES / f"{name}.svg").read_text()
    assert pictures.COMMANDS[name].replace(" ", "&#160;") in svg
    assert [found for found in requests_elsewhere(pictures.PICTURES) if found.startswith(name)] == []
    assert [word for word in ("/tmp", "/home", "/root", "@", os.uname().nodename + "-") if word in svg] == []  # noqa: S108 - no file is made
