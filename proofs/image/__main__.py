"""`make image-test`: builds the Dockerfile's images, and runs them read-only, without capabilities, as their user.

buildah builds each target; runc runs it. Their base is a stand-in, made here: see proofs/image/base.py. It needs Linux,
the rights of root, and packages of Debian and Python. Prints, last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from proofs.image import checks
from proofs.image.base import SUITE, BaseError, install_debian, install_python
from proofs.image.container import contain
from proofs.image.engine import BASE, SEARCHED, BuildError, Engine, missing_tools
from proofs.local_servers.kafka import serve_kafka
from proofs.local_servers.running import NotInstalledError
from proofs.paths import ROOT, TOOLS

TARGETS: Final = ("service", "kafka", "spark")
PASSED, FAILED, NOT_CHECKED = 0, 1, 69
CERTIFICATES: Final = Path("/usr/local/share/ca-certificates")
"""Where Debian has the certificates that this machine trusts in addition. Builds here need them too."""
HELP: Final = f"""
Exit status: {PASSED} if all held; {FAILED} if something did not; {NOT_CHECKED} if something is missing: the text
says what to install.
"""


def check(engine: Engine, target: str, arguments: dict[str, str], log: Path) -> dict[str, Any]:
    """Build a target and check it. `log`: the one that the service wrote, or will. Raises CheckError and BuildError."""
    began = time.monotonic()
    image = engine.unpack(engine.build(ROOT, target, "docker", arguments))
    result: dict[str, Any] = {"built_after_seconds": round(time.monotonic() - began, 1)}
    container = contain(image, engine.work / target)
    try:
        result |= checks.check_files(image, frozenset({"pyarrow", "obstore"} if target == "kafka" else ()))
        checks.check_rights(container)
        checks.check_commands(container)
        if target == "spark":
            result |= checks.check_spark(container, log)
        elif target == "kafka":
            checks.check_refusal(container)
            with serve_kafka() as servers:
                result |= checks.check_kafka(container, servers)
        else:
            result |= checks.check_log(container)
    finally:
        engine.remove(image)
    return result


def missing() -> str:
    """Return what this machine lacks, in a sentence; "" if it lacks nothing."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return "image-test needs Linux and the rights of root: buildah and runc mount file systems"
    if tools := missing_tools():
        return f"image-test needs {', '.join(tools)}: install them (Debian: apt-get install {' '.join(tools)})"
    return ""


def main() -> int:
    """Run the checks, and return the exit status."""
    parser = argparse.ArgumentParser("make image-test", description=__doc__, epilog=HELP)
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this image; spark needs service")
    parser.add_argument("--python", help="the CPython of the stand-in base; by default one of the Dockerfile's version")
    parser.add_argument("--work", type=Path, help="a directory that is kept, with the base and the layers")
    options = parser.parse_args()
    if sentence := missing():
        sys.stderr.write(f"{sentence}\n")
        return NOT_CHECKED
    os.environ["PATH"] = f"{os.environ['PATH']}:{SEARCHED}"
    lint = subprocess.run([TOOLS / "delivery/bin/hadolint", ROOT / "Dockerfile"], check=False)
    result: dict[str, Any] = {"image": "passed", "hadolint": "failed" if lint.returncode else "passed"}
    # /var/tmp, and not the user's: other users must reach it.
    work = options.work or Path(tempfile.mkdtemp(prefix="efo-image-", dir="/var/tmp"))
    work.mkdir(exist_ok=True)
    work.chmod(0o755)
    engine = Engine(work, work / "build.log")
    try:
        result["base"] = _base(engine, options.python)
        trusted = "\n".join(path.read_text() for path in sorted(CERTIFICATES.glob("*.crt")))
        arguments = {"BASE": BASE, **({"CA_CERTIFICATE": trusted} if trusted else {})}
        for target in options.target or TARGETS:
            shutil.rmtree(work / target, ignore_errors=True)
            result[target] = check(engine, target, arguments, work / "service/volume/var/log")
    finally:
        if options.work is None:
            engine.output("rmi", "--all", "--force")
            shutil.rmtree(work)
    result["image"] = "failed" if lint.returncode else "passed"
    print(json.dumps(result))
    return FAILED if lint.returncode else PASSED


def _base(engine: Engine, python: str | None) -> str:
    """Make the image of the stand-in base, or take the one of an earlier run. Return what it is."""
    kept = engine.work / "base.txt"
    if not kept.exists():
        root = engine.work / "base"
        shutil.rmtree(root, ignore_errors=True)
        install_debian(root, engine.work / "debootstrap.log")
        version = install_python(root, python)
        engine.commit_base(root)
        shutil.rmtree(root)
        kept.write_text(f"CPython {version} of this machine, on Debian {SUITE} by debootstrap")
    return kept.read_text()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NotInstalledError as error:
        sys.stderr.write(f"image-test: {error}\n")
        sys.exit(NOT_CHECKED)
    except (BaseError, BuildError, checks.CheckError, subprocess.SubprocessError) as error:
        sys.exit(f"image: {error}")
