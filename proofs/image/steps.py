"""What the stages of an image do, as steps below a directory that stands for the file system of the container. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proofs.image.dockerfile import DockerfileError, Instruction, Stage, chain, copied_from, environment, needed

PACKAGES: Final = "apt-get "
"""With this a RUN begins that installs packages of Debian. It would change this machine, so it is never run."""
_PATH: Final = re.compile(r"(?<![\w./*-])/(?=(?:opt|src|dist|var|usr|etc)\b)")
"""The beginning of an absolute path in a command. Other directories are those of this machine."""


@dataclass(frozen=True, slots=True)
class Run:
    """A command of the shell, in `directory`, with `environment` in addition."""

    command: str
    directory: Path
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Copy:
    """Files of the build context, relative to it. With several, `target` is a directory."""

    sources: tuple[str, ...]
    target: Path


@dataclass(frozen=True, slots=True)
class Skipped:
    """A step that cannot be run without a container. `line`: in the Dockerfile."""

    line: int
    command: str


Step = Run | Copy | Skipped


def below(root: Path, text: str) -> str:
    """Return a command with its absolute paths below a directory."""
    return _PATH.sub(f"{root}/", text)


def steps(stages: dict[str, Stage], target: str, root: Path) -> list[Step]:
    """Return what makes a target, in order. All its stages share the directory, so COPY --from must keep the path.

    Raises DockerfileError: an instruction has no meaning without a container.
    """
    return [step for stage in needed(stages, target) for step in _of_stage(stage, chain(stages, stage.name), root)]


def _of_stage(stage: Stage, ancestors: Sequence[Stage], root: Path) -> list[Step]:
    directory = root
    for one in (one for before in ancestors[:-1] for one in before.instructions if one.name == "WORKDIR"):
        directory = root / one.value.lstrip("/")
    variables = environment(ancestors)
    found: list[Step] = []
    for one in stage.instructions:
        match one.name:
            case "WORKDIR":
                directory = root / one.value.lstrip("/")
            case "RUN" if one.value.startswith(PACKAGES):
                found.append(Skipped(one.line, one.value))
            case "RUN":
                found.append(Run(below(root, one.value), directory, variables))
            case "COPY":
                found += _copy(one, directory, root)
            case _:
                pass  # it concerns the image, not its files
    return found


def _copy(one: Instruction, directory: Path, root: Path) -> list[Step]:
    *sources, target = (word for word in one.words if not word.startswith("--"))
    if copied_from(one) is None:
        return [Copy(tuple(sources), root / target.lstrip("/") if target.startswith("/") else directory / target)]
    if sources != [target]:
        raise DockerfileError(f"line {one.line}: a copy from another stage must keep its path: {one.value}")
    return []


def kept(stages: dict[str, Stage], target: str) -> list[str]:
    """Return the paths that an image takes from other stages. All else that they made is not in it."""
    copies = [one for stage in chain(stages, target) for one in stage.instructions if copied_from(one)]
    return [one.words[-1] for one in copies]
