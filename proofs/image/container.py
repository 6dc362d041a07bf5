"""Commands of an image without a container: another user, an empty environment, a file system that is read-only.

With the rights of root on Linux, the whole file system is read-only but for two directories, and the user is the
image's. Otherwise the files of the image are made read-only, and the user is this one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

UID: Final = 10001
_SECONDS: Final = 900.0
"""The longest command starts Spark, on a machine that may do much else."""
_MOUNTS: Final = """
mount --bind {var} {var} && mount --bind {tmp} /tmp && mount --bind {etc}/passwd /etc/passwd &&
mount -o remount,bind,ro / && cd {var} &&
exec setpriv --reuid {uid} --regid {uid} --clear-groups --no-new-privs -- "$@"
"""


@dataclass(frozen=True, slots=True)
class Container:
    """An image below `root`. `environment`: all variables that its processes have. `isolated`: see the module."""

    root: Path
    environment: Mapping[str, str]
    isolated: bool

    @property
    def var(self) -> Path:
        """Its working directory, the volume."""
        return self.root / "var/lib/efo"

    def command(self, command: Sequence[str]) -> list[str]:
        """Return what starts a command of the image, with its path below `root`."""
        found = [f"{self.root}{command[0]}", *command[1:]]
        if not self.isolated:
            return found
        script = _MOUNTS.format(
            var=shlex.quote(str(self.var)),
            tmp=shlex.quote(str(self.root / "tmp")),
            etc=shlex.quote(str(self.root / "etc")),
            uid=UID,
        )
        return ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh", *found]

    def options(self, variables: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments of subprocess for a command: directory and environment."""
        own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/"}  # as an engine does for an unknown user
        return {"cwd": self.var, "env": {**own, **self.environment, **variables}}

    def output(self, command: Sequence[str], **variables: str) -> str:
        """Run a command to its end, and return what it printed. Raises CalledProcessError, with what it printed."""
        ended = subprocess.run(
            self.command(command),
            **self.options(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        if ended.returncode:
            sys.stderr.write(ended.stdout[-2000:] + ended.stderr[-4000:])
            ended.check_returncode()
        return str(ended.stdout)


def contain(root: Path, environment: Mapping[str, str]) -> Container:
    """Make the files of an image read-only, and return a container for its commands."""
    container = Container(root, environment, can_isolate())
    (root / "tmp").mkdir(exist_ok=True)
    for directory in (root / "tmp", container.var):
        if container.isolated:
            os.chown(directory, UID, UID)
    for path in root.rglob("*"):
        if not path.is_symlink() and not path.is_relative_to(root / "tmp") and not path.is_relative_to(container.var):
            path.chmod(path.stat().st_mode & 0o555)
    return container


def can_isolate() -> bool:
    """Return whether this process may mount and change the user, and the tools for it exist."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return False
    tried = ["unshare", "--mount", "--propagation", "private", "mount", "--bind", "/tmp", "/tmp"]  # noqa: S108
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0
