"""`make release-check`: everything that a release has is built, installed in empty environments, and tried.

Progress goes to stderr; the last line of stdout is one JSON object. The files stay in build/release/. Exits with 1 if a
check fails.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from proofs.paths import ROOT
from proofs.release import checkout
from proofs.release.artifacts import Artifacts
from proofs.release.commands import CheckError


def checks(artifacts: Artifacts, directory: Path, tag: str, targets: str) -> dict[str, Callable[[], str]]:
    """Return each check by its name, in their order: later ones need what earlier ones built."""
    return {
        "versions": lambda: checkout.versions(tag),
        "workflows": checkout.workflows,
        "sdist": artifacts.sdist,
        "wheel": artifacts.wheel,
        "contents": artifacts.contents,
        "description": lambda: artifacts.description(tag),
        "installed": artifacts.installed,
        "first program": artifacts.first_program,
        "command line": artifacts.command_line,
        "native": artifacts.native,
        "audit": lambda: checkout.audited(directory / "sbom.cdx.json"),
        "site": checkout.site,
        **({"images": lambda: checkout.images(targets)} if targets else {}),
    }


def main() -> int:
    """Run the checks, and return the exit status."""
    parser = argparse.ArgumentParser("make release-check", description=__doc__)
    parser.add_argument("--tag", default="", help="of the release: the version must be this one")
    parser.add_argument("--images", default="service,kafka", help='of these targets; "" for none; spark takes minutes')
    parser.add_argument("--out", type=Path, default=ROOT / "build/release", help="where the files are made")
    options = parser.parse_args()
    directory = options.out.resolve()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    artifacts = Artifacts(directory)
    began, failed = time.monotonic(), []
    every = checks(artifacts, directory, options.tag, options.images)
    for name, check in every.items():
        try:
            detail = check()
        except CheckError as error:
            failed.append(name)
            detail = f"FAILED: {error}"
        print(f"{time.monotonic() - began:7.1f} s  {name}: {detail}", file=sys.stderr, flush=True)
    result = {"artifacts": len(artifacts.files), "checks": len(every), "failed": len(failed), "failures": failed}
    print(json.dumps(result))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
