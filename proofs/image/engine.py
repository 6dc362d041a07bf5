"""buildah, with a storage of its own: builds the stages of the Dockerfile, and gives the files of an image."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TOOLS: Final = ("buildah", "debootstrap", "runc")
"""What the proof needs. Debian has a package of each name."""
SEARCHED: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE: Final = "localhost/efo-base"


class BuildError(Exception):
    """An image cannot be built."""


def missing_tools() -> list[str]:
    """Return the programs that this machine does not have."""
    return [name for name in TOOLS if shutil.which(name, path=SEARCHED) is None]


@dataclass(frozen=True, slots=True)
class Engine:
    """buildah with all its files below `work`. `log`: what builds print."""

    work: Path
    log: Path

    def command(self, *words: str) -> list[str]:
        """Return a command line of buildah."""
        storage = [f"--root={self.work / 'storage'}", f"--runroot={self.work / 'run'}", "--storage-driver=overlay"]
        return ["buildah", *storage, *words]

    def output(self, *words: str) -> str:
        """Run a command of buildah, and return what it prints. Raises BuildError."""
        ended = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        if ended.returncode:
            raise BuildError(f"buildah {words[0]} ended with {ended.returncode}: {ended.stderr[-2000:]}")
        return ended.stdout.strip()

    def commit_base(self, root: Path) -> None:
        """Make an image of a file system."""
        container = self.output("from", "scratch")
        self.output("add", "--quiet", container, str(root), "/")
        self.output("config", "--env", "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self.output("commit", "--quiet", container, BASE)
        self.output("rm", container)

    def build(self, context: Path, target: str, image_format: str, arguments: Mapping[str, str]) -> str:
        """Build a target of the Dockerfile, and return the image's name. Raises BuildError."""
        name = f"localhost/efo-{target}-{image_format}"
        options = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        isolated = ["--isolation=chroot", "--layers", "--network=host", "--pull-never"]
        command = self.command("bud", *isolated, f"--format={image_format}", f"--target={target}", f"--tag={name}")
        with self.log.open("ab") as out:
            ended = subprocess.run(
                [*command, *options, str(context)], stdout=out, stderr=subprocess.STDOUT, check=False
            )
        if ended.returncode:
            raise BuildError(f"buildah bud --target={target} ended with {ended.returncode}: {self.end_of_log()}")
        return name

    def end_of_log(self) -> str:
        """Return what the last build printed last."""
        return self.log.read_text(errors="replace")[-3000:]

    def unpack(self, image: str) -> Image:
        """Mount an image, and return it."""
        container = self.output("from", "--pull-never", image)
        root = Path(self.output("mount", container))
        found = json.loads(self.output("inspect", "--type=image", image))
        return Image(image, root, found["Docker"]["config"], container)

    def remove(self, image: Image) -> None:
        """Unmount an image."""
        self.output("umount", image.container)
        self.output("rm", image.container)


@dataclass(frozen=True, slots=True)
class Image:
    """An image whose files are mounted at `root`. `config`: as engines show it, such as Env and Healthcheck."""

    name: str
    root: Path
    config: Mapping[str, Any]
    container: str

    @property
    def start(self) -> list[str]:
        """What a container of the image runs."""
        return [*self.config["Entrypoint"], *self.config["Cmd"]]

    @property
    def health(self) -> Sequence[str]:
        """The words of the health check; none if it has none."""
        test = list((self.config.get("Healthcheck") or {}).get("Test") or ["NONE"])
        return [] if test[0] == "NONE" else test[1:]
