"""Containers of an image, run by runc as Kubernetes runs them in the standard `restricted`.

That is: read-only, without capabilities, as the image's user, without new rights. The network is this machine's, so
that they reach the fake.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from proofs.image.engine import Image

_SECONDS: Final = 900.0
"""The longest command starts Spark, on a machine that may do much else."""
_MASKED: Final = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware")
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@dataclass(frozen=True, slots=True)
class Container:
    """A container of an image. `work`: a directory for its files. `volume`: mounted where the image has one."""

    image: Image
    work: Path
    volume: Path

    @property
    def user(self) -> int:
        """The number of its user."""
        return int(self.image.config["User"].partition(":")[0])

    def runc(self, *words: str) -> list[str]:
        """Return a command line of runc."""
        return ["runc", f"--root={self.work / 'runc'}", *words]

    def start(self, name: str, command: Sequence[str], variables: Mapping[str, str], out: IO[bytes]) -> Any:
        """Start a command in a container of this name, and return the process. It ends with the container."""
        bundle = self._bundle(name, command, variables)
        return subprocess.Popen(self.runc("run", f"--bundle={bundle}", name), stdout=out, stderr=subprocess.STDOUT)

    def output(self, command: Sequence[str], **variables: str) -> str:
        """Run a command in a container of its own, and return what it printed. Raises CalledProcessError."""
        bundle = self._bundle("command", command, variables)
        return _run(self.runc("run", f"--bundle={bundle}", "command"))

    def exec(self, name: str, command: Sequence[str]) -> str:
        """Run a command in a container that runs, as a health check is, and return what it printed."""
        return _run(self.runc("exec", name, *command))

    def signal(self, name: str, signal: str) -> None:
        """Send a signal to the first process of a container."""
        _run(self.runc("kill", name, signal))

    def remove(self, name: str) -> None:
        """End a container, if it runs."""
        with suppress(subprocess.CalledProcessError):
            subprocess.run(self.runc("delete", "--force", name), capture_output=True, check=True)

    def _bundle(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> Path:
        bundle = self.work / "bundles" / name
        shutil.rmtree(bundle, ignore_errors=True)
        bundle.mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps(self.specification(command, variables)))
        return bundle

    def specification(self, command: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
        """Return config.json of OCI's runtime specification."""
        config = self.image.config
        environment = [*config["Env"], *(f"{key}={value}" for key, value in variables.items())]
        user, group = map(int, config["User"].split(":"))
        small = {"type": "tmpfs", "source": "tmpfs"}
        bound = {"type": "bind"}
        resolving = [
            {**bound, "source": path, "destination": path, "options": ["bind", "ro", "nosuid", "nodev"]}
            for path in ("/etc/hosts", "/etc/resolv.conf")
            if Path(path).exists()
        ]
        volumes = [
            {**bound, "source": str(self.volume), "destination": path, "options": ["bind", "rw", "nosuid", "nodev"]}
            for path in config["Volumes"]
        ]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": group},
                "args": list(command),
                "env": environment,
                "cwd": config["WorkingDir"],
                "capabilities": {name: [] for name in ("bounding", "effective", "permitted", "inheritable", "ambient")},
                "noNewPrivileges": True,
            },
            "root": {"path": str(self.image.root), "readonly": True},
            "mounts": [
                {"type": "proc", "source": "proc", "destination": "/proc", "options": ["nosuid", "noexec", "nodev"]},
                {**small, "destination": "/dev", "options": ["nosuid", "mode=755", "size=64k"]},
                {**small, "destination": "/dev/shm", "options": ["nosuid", "noexec", "nodev", "mode=1777"]},  # noqa: S108
                {**small, "destination": "/tmp", "options": ["nosuid", "nodev", "mode=1777", "size=512m"]},  # noqa: S108
                *resolving,
                *volumes,
            ],
            "linux": {
                "namespaces": [{"type": name} for name in ("pid", "ipc", "uts", "mount")],
                "maskedPaths": list(_MASKED),
                "readonlyPaths": list(_READ_ONLY),
            },
        }


def _run(command: Sequence[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if ended.returncode:
        sys.stderr.write(ended.stdout[-2000:] + ended.stderr[-4000:])
        ended.check_returncode()
    return ended.stdout


def contain(image: Image, work: Path) -> Container:
    """Return a container for an image, with an empty volume of its user."""
    container = Container(image, work, work / "volume")
    container.volume.mkdir(parents=True)
    os.chown(container.volume, container.user, container.user)
    return container
