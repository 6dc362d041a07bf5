"""`make image-test`: runs the steps of the Dockerfile in an empty directory, and then what the images run.

Prints, last, one JSON object. It uses no container engine: docs/deployment.md says what that shows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from proofs.image.checks import CheckError, check_commands, check_service, check_spark
from proofs.image.container import contain
from proofs.image.dockerfile import DockerfileError, Stage, chain, environment, parse, setting
from proofs.image.prefix import StepError, make, mebibytes
from proofs.image.steps import below
from proofs.paths import ROOT, TOOLS

TARGETS: Final = ("service", "spark")
PASSED, FAILED, NOT_CHECKED = 0, 1, 69
HELP: Final = f"""
Exit status: {PASSED} if all held; {FAILED} if something did not; {NOT_CHECKED} if a tool is missing (Maven and Java for
the image with Spark).
"""


def check(stages: dict[str, Stage], target: str, root: Path, log: Path | None) -> dict[str, Any]:
    """Make a target below a directory, and check it. `log`: one that another service wrote, for Spark."""
    skipped = make(stages, target, root)
    image = chain(stages, target)
    container = contain(root, {name: below(root, value) for name, value in environment(image).items()})
    entry, command, health, stop = (
        _instruction(image, name) for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK", "STOPSIGNAL")
    )
    start = [*entry.command, *command.command]
    check_commands(container, entry.command[0])
    if log is None:
        seen = check_service(container, start, health.command, stop.value)
    else:
        seen = check_spark(container, start, log)
    sizes = {"prefix_mib": mebibytes(root / "opt"), "largest": _largest(root / "opt/efo")}
    return {
        "isolated": container.isolated,
        **sizes,
        **seen,
        "not_run": [f"line {one.line}: {one.command}" for one in skipped],
    }


def _instruction(image: list[Stage], name: str) -> Any:
    found = setting(image, name)
    if found is None:
        raise CheckError(f"the Dockerfile has no {name}")
    return found


def _largest(prefix: Path) -> dict[str, float]:
    sizes = {path.name: mebibytes(path) for path in prefix.glob("lib/python3*/site-packages/*") if path.is_dir()}
    return dict(sorted(sizes.items(), key=lambda item: -item[1])[:5])


def main() -> int:
    """Run the checks, and return the exit status."""
    parser = argparse.ArgumentParser("make image-test", description=__doc__, epilog=HELP)
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this image")
    parser.add_argument("--keep", action="store_true", help="keep the directories")
    options = parser.parse_args()
    stages = parse((ROOT / "Dockerfile").read_text())
    result: dict[str, Any] = {"image": "passed"}
    lint = subprocess.run([TOOLS / "delivery/bin/hadolint", ROOT / "Dockerfile"], check=False)
    result["hadolint"] = "passed" if lint.returncode == 0 else "failed"
    missing = [tool for tool in ("mvn", "java") if shutil.which(tool) is None]
    # /var/tmp, and not the user's: other users must reach it.
    work = Path(tempfile.mkdtemp(prefix="efo-image-", dir="/var/tmp"))
    work.chmod(0o755)
    try:
        for target in options.target or TARGETS:
            if target == "spark" and missing:
                result[target] = f"not checked: install {' and '.join(missing)}"
                continue
            log = work / "service/var/lib/efo/var/log"
            (work / target).mkdir()
            result[target] = check(stages, target, work / target, log if target == "spark" else None)
    finally:
        if not options.keep:
            shutil.rmtree(work)
    failed = result["hadolint"] == "failed"
    result["image"] = (
        "failed" if failed else "not checked" if any(isinstance(result.get(one), str) for one in TARGETS) else "passed"
    )
    print(json.dumps(result))
    return {"failed": FAILED, "passed": PASSED, "not checked": NOT_CHECKED}[result["image"]]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CheckError, DockerfileError, StepError, subprocess.SubprocessError) as error:
        sys.exit(f"image: {error}")
