"""The examples of the pages, and how each is run. Every block of a language that can be run is an example.

A comment before a block says how it is to be run, where its language does not:

    <!-- example -->                   the body of an async function, with the names of docs/consuming.md
    <!-- example: poison -->           the same, with a record that the handler refuses
    <!-- example: until 20 lines -->   a program that is interrupted after so many lines of output
    <!-- example: spark -->            an expression with `spark`, a session
    <!-- example: readers -->          a program beside a log, with the packages of requirements/readers.txt
    <!-- example: producer -->         the body of an async function, with the names of docs/producing.md
    <!-- example: dynamodb -->         the body of an async function, with a DynamoDB
    <!-- example: beside efo run -->   commands that need a running service
    <!-- example: not run: REASON -->  left out; Python is compiled all the same
    <!-- file: put.py -->              a file, written before the commands below it are run
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

from tools.docs.pages import Block, Page

Kind = Literal[
    "body", "until", "spark", "readers", "producer", "dynamodb", "program", "tests", "settings", "faults", "pyproject",
    "json", "file", "command", "left_out",
]  # fmt: skip

NOT_EXECUTED: Final = {
    r"make [a-z]": "a make target with a proof or a download of its own: `make -n` finds it",
    r"pip install ": "installs packages",
    r"git clone ": "copies the repository",
    r"(sudo )?apt-get ": "changes the machine",
    r"spark-submit --master (yarn|k8s)": "needs a cluster",
    r"docker(-compose)? ": "needs a container engine",
    r"(kubectl|helm|kustomize) ": "needs a Kubernetes cluster",
    r"aws ": "needs an AWS account",
    r"(java|keytool) ": "belongs to a program of the reader",
}
"""Commands that no test runs, as regular expressions, each with its reason."""

_NOT_RUN: Final = "example: not run: "
BESIDE_SERVICE: Final = "example: beside efo run"
"""The mark of commands that need a running service."""
_TEXTS: Final = {"", "mermaid", "text"}
"""Languages of blocks that are no examples: diagrams, layouts, formulas."""


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the output that the page shows after it."""

    place: str
    text: str
    output: str = ""

    @property
    def reason(self) -> str | None:
        """Why no test runs it; None: a test does."""
        return next((reason for start, reason in NOT_EXECUTED.items() if re.match(start, self.text)), None)


@dataclass(frozen=True)
class Example:
    """A thing to run: a block, or a single command of a console block. `reason`: why it is left out."""

    kind: Kind
    place: str
    block: Block
    command: Command | None = None
    reason: str | None = None


def examples(pages: Iterable[Page]) -> Iterator[Example]:
    """Return every example of these pages, in order. Raises ValueError for a block that nobody knows how to run."""
    for page in pages:
        for block in page.blocks:
            if block.language == "console":
                reason = reason_of(block)
                if not reason and block.mark not in {"", BESIDE_SERVICE}:
                    raise ValueError(f"{block.place}: <!-- {block.mark} --> is no mark of commands")
                for command in commands(block):
                    why = reason or command.reason
                    yield Example("left_out" if why else "command", command.place, block, command, why)
            elif (found := kind_of(block)) is not None:
                yield Example(found, block.place, block, reason=reason_of(block))


def reason_of(block: Block) -> str | None:
    """Return why a block is left out, if its mark says so. Raises ValueError for a mark without a reason."""
    if not block.mark.startswith(_NOT_RUN.strip()):
        return None
    if not (reason := block.mark.removeprefix(_NOT_RUN.strip()).strip()):
        raise ValueError(f"{block.place}: <!-- {block.mark} --> needs a reason")
    return reason


def kind_of(block: Block) -> Kind | None:
    """Return how a block is run; None for a block that is no example. Raises ValueError."""
    if block.mark.startswith("file:"):
        return "file"
    if reason_of(block):
        return "left_out"
    match block.language:
        case "python" | "py":
            return _python(block)
        case "toml":
            return _toml(block)
        case "json":
            return "json"
    _refuse_hidden(block)
    return None


def _refuse_hidden(block: Block) -> None:
    """Raise ValueError for a block that looks like an example, but has a language that nobody knows how to run."""
    if block.language == "indented" and re.search(r"^\$ |^pip |^import ", block.text, re.MULTILINE):
        raise ValueError(f"{block.place}: an indented example: write a fenced block, ```console or ```python")
    if block.language not in {*_TEXTS, "indented"}:
        raise ValueError(
            f"{block.place}: {block.language!r} is none of console, python, toml, json and text: use one of them, or "
            "tell tools/docs/examples.py how to run it"
        )
    if re.search(r"^\$ ", block.text, re.MULTILINE):
        raise ValueError(f"{block.place}: commands without a language: write ```console")


def _toml(block: Block) -> Kind:
    if re.search(r"^\[(project|tool)\b", block.text, re.MULTILINE):
        return "pyproject"
    return "faults" if "[[fault]]" in block.text else "settings"


def _python(block: Block) -> Kind:
    mark = block.mark.removeprefix("example").lstrip(": ")
    match mark.split()[:1]:
        case [] if block.mark:
            return "body"
        case []:
            return "tests" if re.search(r"^(async )?def test_", block.text, re.MULTILINE) else "program"
        case ["poison"]:
            return "body"
        case [word] if word in get_args(Kind):
            return word  # type: ignore[return-value]
        case _:
            raise ValueError(
                f"{block.place}: <!-- {block.mark} --> is no way to run an example: see tools/docs/examples.py"
            )


def commands(block: Block) -> Iterator[Command]:
    """Return the commands of a console block: lines after "$ ", their continuations after "> " or a backslash."""
    text: list[str] = []
    output: list[str] = []
    first = 0
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            if text:
                yield Command(f"{block.page}:{first}", "\n".join(text), "\n".join(output))
            text, output, first = [line[2:]], [], number
        elif text and not output and (text[-1].endswith("\\") or line.startswith("> ")):
            text.append(line.removeprefix("> "))
        elif text:
            output.append(line)
        else:
            raise ValueError(f'{block.page}:{number}: a console block begins with a command, a line with "$ "')
    if text:
        yield Command(f"{block.page}:{first}", "\n".join(text), "\n".join(output).rstrip())
