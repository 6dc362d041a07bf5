from __future__ import annotations

import pytest

from tools.docs.examples import Command, commands, examples
from tools.docs.pages import Block, parse_page


def found(text):
    return list(examples([parse_page("a.md", text)]))


def fenced(language, text="x", mark=""):
    return f"{mark}\n```{language}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (fenced("python"), "program"),
        (fenced("python", "async def test_x(): ..."), "tests"),
        (fenced("python", mark="<!-- example -->"), "body"),
        (fenced("python", mark="<!-- example: poison -->"), "body"),
        (fenced("python", mark="<!-- example: until 3 lines -->"), "until"),
        (fenced("python", mark="<!-- example: spark -->"), "spark"),
        (fenced("python", mark="<!-- file: put.py -->"), "file"),
        (fenced("python", mark="<!-- another comment -->"), "program"),
        (fenced("toml"), "settings"),
        (fenced("toml", "[[fault]]"), "faults"),
        (fenced("toml", "[project]\nname = 'x'"), "pyproject"),
        (fenced("python", mark="<!-- example: not run: needs a GPU -->"), "left_out"),
        (fenced("console", "$ efo version", "<!-- example: not run: needs a GPU -->"), "left_out"),
        (fenced("json"), "json"),
        (fenced("console", "$ efo version"), "command"),
        (fenced("console", "$ make demo"), "left_out"),
    ],
)
def test_language_and_mark_say_how_a_block_is_run(block, kind):
    assert [one.kind for one in found(block)] == [kind]


@pytest.mark.parametrize("block", [fenced("mermaid"), fenced(""), "    a layout\n"])
def test_a_diagram_is_no_example(block):
    assert found(block) == []


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (fenced("ruby"), "'ruby' is none of"),
        (fenced("", "$ efo version"), "commands without a language"),
        ("    $ efo version\n", "an indented example"),
        (fenced("python", mark="<!-- example: perhaps -->"), "is no way to run an example"),
        (fenced("console", "efo version"), "begins with a command"),
        (fenced("python", mark="<!-- example: not run: -->"), "needs a reason"),
        (fenced("console", "$ efo version", "<!-- example: poison -->"), "is no mark of commands"),
    ],
)
def test_what_nobody_knows_how_to_run_is_refused_with_its_place(block, problem):
    with pytest.raises(ValueError, match=rf"a\.md:\d+: .*{problem}"):
        found(block)


def test_a_command_has_its_continuations_and_its_output():
    text = "$ one \\\n  more\n$ two\nits output\n\n> also output\n$ cat <<E\n> here\n> E\n"
    assert list(commands(Block("a.md", 10, "console", text))) == [
        Command("a.md:11", "one \\\n  more"),
        Command("a.md:13", "two", "its output\n\n> also output"),
        Command("a.md:17", "cat <<E\nhere\nE"),
    ]


def test_a_block_that_is_left_out_has_its_own_reason():
    (example,) = found(fenced("console", "$ efo version", "<!-- example: not run: needs a GPU -->"))
    assert example.reason == "needs a GPU"


def test_a_command_that_is_left_out_has_a_reason():
    assert Command("a.md:1", "pip install efo").reason == "installs packages"
    assert Command("a.md:1", "efo run").reason is None
