from __future__ import annotations

import os

import pytest

from tools.docs.examples import Command
from tools.docs.shell import FailedCommandError, Shell, matches


@pytest.fixture
def shell(tmp_path):
    with Shell(tmp_path, {"PATH": os.environ["PATH"]}, {"PORT": "1234"}) as shell:
        yield shell


def test_the_commands_of_a_page_share_a_shell(shell, tmp_path):
    for text in ["mkdir sub; cd sub # a comment", "export NAME=value", 'echo "$NAME PORT" > file']:
        shell.run(Command("a.md:1", text))
    assert (tmp_path / "sub" / "file").read_text() == "value 1234\n"


def test_a_file_of_the_page_is_written(shell):
    shell.write("sub/put.py", "print('PORT')")
    shell.run(Command("a.md:1", "cat sub/put.py", "print('PORT')"))


def test_a_command_that_fails_is_reported_with_its_output(shell):
    with pytest.raises(FailedCommandError, match=r"a\.md:7: 'echo why; false' exits with 1:\nwhy"):
        shell.run(Command("a.md:7", "echo why; false"))


def test_another_output_than_that_of_the_page_is_reported(shell):
    with pytest.raises(FailedCommandError, match="prints\none"):
        shell.run(Command("a.md:7", "echo one", "two"))


def test_a_service_that_ends_at_once_is_reported(shell, tmp_path):
    (tmp_path / "efo").write_text("#!/bin/sh\necho the port is in use\n")
    (tmp_path / "efo").chmod(0o755)
    shell.run(Command("a.md:1", 'PATH="$PWD:$PATH"'))
    with pytest.raises(FailedCommandError, match="is not ready:\nthe port is in use"):
        shell.run(Command("a.md:7", "efo fake"))


def service(directory, on_signal):
    """A command `efo` that says that it serves, and handles signals."""
    (directory / "efo").write_text(
        f"#!/bin/sh\ntrap '{on_signal}' INT TERM\necho Press Ctrl-C\nwhile true; do sleep 0.01; done\n"
    )
    (directory / "efo").chmod(0o755)
    return {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("command", ["efo fake # a comment", "efo tail orders"])
def test_a_service_runs_beside_the_next_commands_and_is_stopped_at_the_end(command, tmp_path):
    with Shell(tmp_path, service(tmp_path, "echo stopped; exit 0"), {}) as shell:
        shell.run(Command("a.md:1", command))
        shell.run(Command("a.md:2", "cat .output-1", "Press Ctrl-C"))
    assert "stopped" in (tmp_path / ".output-1").read_text()


def test_a_service_that_does_not_end_well_is_reported(tmp_path):
    with (
        pytest.raises(FailedCommandError, match="ends with 3 when it is stopped"),
        Shell(tmp_path, service(tmp_path, "exit 3"), {}) as shell,
    ):
        shell.run(Command("a.md:1", "efo fake"))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a b", "x\na   b\ny", True),
        ("a\nb", "a b", True),
        ("a ... d", "a\nb c\nd", True),
        ('["x", ...]', '["x", "y", "z"]', True),
        ("a.c", "abc", False),
        ("b a", "a b", False),
        ("1 ... 3", "3 2 1", False),
    ],
)
def test_outputs_are_compared_loosely(shown, printed, same):
    assert matches(shown, printed) is same
