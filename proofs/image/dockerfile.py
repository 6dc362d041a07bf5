"""The Dockerfile as data: stages and their instructions. Pure.

It reads what the Dockerfile of this project uses: comments, continued lines, ARG before the first stage, named stages.
What it does not know, such as here-documents, is refused, and not passed over.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

KNOWN: Final = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN"} | {
    *("STOPSIGNAL", "USER", "VOLUME", "WORKDIR")
}
"""The instructions that are understood."""


class DockerfileError(Exception):
    """A line that is not understood."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `line`: of its beginning, from 1."""

    name: str
    value: str
    line: int

    @property
    def words(self) -> list[str]:
        """The value, split as by a shell: without quotes."""
        return shlex.split(self.value)

    @property
    def pairs(self) -> dict[str, str]:
        """The names and values of ENV, LABEL or ARG. A name without a value has an empty one."""
        return {name: value for name, _, value in (word.partition("=") for word in self.words)}

    @property
    def command(self) -> list[str]:
        """The words of the exec form, as of ENTRYPOINT. Raises DockerfileError: it is of the shell form."""
        text = self.value[self.value.find("[") :]
        try:
            found = json.loads(text)
        except ValueError:
            raise DockerfileError(
                f"line {self.line}: write {self.name} as a list, so that no shell is needed"
            ) from None
        return [str(word) for word in found]


@dataclass(frozen=True, slots=True)
class Stage:
    """A build stage. `base`: the name of another stage, or the reference of an image."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]

    def last(self, name: str) -> Instruction | None:
        """Return the last instruction of this name; None if there is none."""
        return next((one for one in reversed(self.instructions) if one.name == name), None)

    @property
    def sources(self) -> set[str]:
        """The stages that this one needs: its base, and those it copies from."""
        return {self.base, *(source for one in self.instructions if (source := copied_from(one)))}


def copied_from(instruction: Instruction) -> str | None:
    """Return the stage that a COPY takes from; None if it takes from the build context, or is no COPY."""
    options = [word for word in instruction.words if word.startswith("--from=")] if instruction.name == "COPY" else []
    return options[0].removeprefix("--from=") if options else None


def parse(text: str) -> dict[str, Stage]:
    """Return the stages by their names, in their order. Raises DockerfileError."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    name, base, body = "", "", list[Instruction]()
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            match = re.fullmatch(r"(\S+)(?: AS (\S+))?", instruction.value)
            if match is None:
                raise DockerfileError(f"line {instruction.line}: expected FROM BASE AS NAME: {instruction.value}")
            name, base, body = match[2] or str(len(stages)), expand(match[1], arguments), []
            stages[name] = Stage(name, base, ())
        elif not stages:
            arguments |= instruction.pairs
        else:
            body.append(instruction)
            stages[name] = Stage(name, base, tuple(body))
    if not stages:
        raise DockerfileError("no FROM: the file has no stage")
    return stages


def chain(stages: Mapping[str, Stage], target: str) -> list[Stage]:
    """Return a stage with those it is based on, the first one first: what they say holds for the image."""
    found = [stages[target]]
    while (base := found[0].base) in stages:
        found.insert(0, stages[base])
    return found


def needed(stages: Mapping[str, Stage], target: str) -> list[Stage]:
    """Return the stages that a target needs and the target, in the order of the file, which is that of a build."""
    names, todo = set[str](), [target]
    while todo:
        name = todo.pop()
        if name in stages and name not in names:
            names.add(name)
            todo += stages[name].sources
    return [stage for name, stage in stages.items() if name in names]


def setting(stages: Sequence[Stage], name: str) -> Instruction | None:
    """Return the instruction of this name that holds for the last of these stages, such as USER."""
    return next((found for stage in reversed(stages) if (found := stage.last(name))), None)


def environment(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the variables that ENV sets in these stages."""
    return _merged(stages, "ENV", {})


def labels(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the labels of an image whose build has no arguments."""
    return _merged(stages, "LABEL", _merged(stages, "ARG", {}))


def _merged(stages: Sequence[Stage], name: str, arguments: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for stage in stages:
        for one in stage.instructions:
            if one.name == name:
                found |= {key: expand(value, arguments) for key, value in one.pairs.items()}
    return found


def expand(text: str, arguments: Mapping[str, str]) -> str:
    """Replace each ${NAME} by its value. Unknown names stay."""
    return re.sub(r"\$\{(\w+)\}", lambda match: arguments.get(match[1], match[0]), text)


def _instructions(text: str) -> Iterator[Instruction]:
    parts: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not parts and not line.strip()):
            continue  # a comment is left out also within a continued line
        first = first if parts else number
        parts.append(line.rstrip().removesuffix("\\").strip())
        if line.rstrip().endswith("\\"):
            continue
        name, _, value = " ".join(part for part in parts if part).partition(" ")
        parts = []
        if name.upper() not in KNOWN or "<<" in value:
            raise DockerfileError(f"line {first}: not understood: {name} {value[:60]}")
        yield Instruction(name.upper(), value.strip(), first)
    if parts:
        raise DockerfileError(f"line {first}: continued, but the file ends")
