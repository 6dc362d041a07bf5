"""Finds the Java for Spark in advance: without Java, Spark itself fails with a long error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from efo.third_party_errors import reason_of
from efo_service.spark.errors import JavaMissingError

MIN_VERSION: Final = 17
"""Spark 4 needs Java 17 or newer."""
_ADVICE: Final = (
    f"Spark needs Java {MIN_VERSION} or newer. Install it (Debian, Ubuntu: apt-get install"
    f" openjdk-{MIN_VERSION}-jre-headless; macOS: brew install openjdk@{MIN_VERSION}) and put it on PATH,"
    " or set JAVA_HOME to its directory"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough for Spark.

    `path`: of the executable. `version`: the major version. `build`: the whole output of `java -version`.
    """

    path: Path
    version: int
    build: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java that Spark's scripts would choose: the one in JAVA_HOME, else the first on PATH.

    Raises JavaMissingError.
    """
    home = environment.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise JavaMissingError(f"no java on PATH, and JAVA_HOME is not set. {_ADVICE}")
    try:
        result = subprocess.run([found, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - the operator's own Java
    except (OSError, subprocess.SubprocessError) as error:
        where = " (from JAVA_HOME)" if home else ""
        raise JavaMissingError(f"{found}{where} does not run: {reason_of(error)}. {_ADVICE}") from error
    build = result.stderr + result.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', build)
    if match is None or int(match[1]) < MIN_VERSION:
        version_line = build.splitlines()[0] if build else "nothing"
        raise JavaMissingError(f"{found} is too old: `java -version` prints {version_line}. {_ADVICE}")
    return Java(Path(found), int(match[1]), build)
