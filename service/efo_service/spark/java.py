"""Finds the Java that Spark will run on, before Spark looks for it and fails at length."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from efo_service.spark.errors import JavaMissingError

OLDEST: Final = 17
"""Spark 4 runs on Java 17 and newer."""
_ADVICE: Final = (
    f"Spark needs Java {OLDEST} or newer. Install it (Debian, Ubuntu: apt-get install openjdk-{OLDEST}-jre-headless;"
    f" macOS: brew install openjdk@{OLDEST}) and put it on PATH, or set JAVA_HOME to where it is"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough. `build` is the whole of what it says of its version."""

    path: Path
    version: int
    build: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Find the Java that Spark's own scripts would take: JAVA_HOME's, else the first on PATH.

    Raises JavaMissingError.
    """
    home = environment.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise JavaMissingError(f"no java on PATH, and JAVA_HOME is not set. {_ADVICE}")
    try:
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - the operator's own Java
    except (OSError, subprocess.SubprocessError) as error:
        where = " (from JAVA_HOME)" if home else ""
        raise JavaMissingError(f"{found}{where} does not run: {error}. {_ADVICE}") from error
    build = answer.stderr + answer.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', build)
    if match is None or int(match[1]) < OLDEST:
        said = build.splitlines()[0] if build else "nothing"
        raise JavaMissingError(f"{found} is too old: it says {said}. {_ADVICE}")
    return Java(Path(found), int(match[1]), build)
