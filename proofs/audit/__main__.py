"""`make audit`: what the locked dependencies may do to those who install efo. Prints, last, one JSON object."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proofs.audit.crates import allowed_licences, judge_crates
from proofs.audit.licences import installed, judge, refused_as_programs
from proofs.audit.locks import LockError, parse_lock, rounds
from proofs.audit.vulnerabilities import ask_pip_audit, check
from proofs.paths import ROOT, TOOLS

# The locks whose packages this machine has installed when the target runs. The others are of separate environments for
# proofs: their licences are read only as far as those environments exist.
INSTALLED: Final = ("base", "service", "dev", "build", "audit")
PRODUCT: Final = "service"  # what the container image contains
NOTHING_FOUND, FOUND, NOT_CHECKED = 0, 1, 69
HELP = f"""
Exit status: {NOTHING_FOUND} if everything was checked and nothing found; {FOUND} if a package has a known
vulnerability, or a licence that [tool.efo.audit] of pyproject.toml or, for a crate, native/deny.toml does not allow;
{NOT_CHECKED} if nothing was found but something could not be checked, for example because no service for
vulnerabilities was reachable, or, of the crates, because there is no cargo.
"""


def exit_status(vulnerabilities: Mapping[str, Any], licences: Mapping[str, Any]) -> int:
    """Return the exit status: what was found goes before what could not be checked."""
    if vulnerabilities["found"] or licences["refused"] or licences["unknown"]:
        return FOUND
    return NOT_CHECKED if vulnerabilities["status"] != "checked" or licences["not_installed"] else NOTHING_FOUND


def write_sbom(path: Path) -> int:
    """Write the CycloneDX software bill of materials of the container image. Return the number of its components."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [str(TOOLS / "audit/bin/cyclonedx-py"), "requirements", "--pyproject", str(ROOT / "pyproject.toml")]
    command += ["--output-reproducible", "--of", "JSON", "-o", str(path), str(ROOT / f"requirements/{PRODUCT}.txt")]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)  # noqa: S603 - it warns that locks have no root
    return len(json.loads(path.read_text())["components"])


def main() -> int:
    """Run the audit, and return the exit status."""
    parser = argparse.ArgumentParser("make audit", description=__doc__, epilog=HELP)
    parser.add_argument("--sbom", type=Path, default=ROOT / "var/audit/sbom.cdx.json", help="where the SBOM is written")
    sbom = parser.parse_args().sbom
    files = sorted((ROOT / "requirements").glob("*.txt"))
    locks = {file.stem: parse_lock(file.read_text(), f"requirements/{file.name}") for file in files}
    audit = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["efo"]["audit"]
    allowed = audit["licences"]
    found = installed([*sys.path, *(str(path) for path in TOOLS.glob("**/site-packages"))])
    licences = judge((pin for name in INSTALLED for pin in locks[name]), found, allowed)
    others = judge((pin for name, pins in locks.items() if name not in INSTALLED for pin in pins), found, allowed)
    licences["refused"] |= refused_as_programs(others["refused"], audit["programs"])
    licences["unknown"] = sorted({*licences["unknown"], *others["unknown"]})
    crates = judge_crates(allowed_licences())
    licences["refused"] |= crates["refused"]
    licences["unknown"] += crates["unknown"]
    licences["not_installed"] += crates["not_installed"]
    vulnerabilities = check(rounds(locks), ask_pip_audit(TOOLS / "audit/bin/pip-audit"))
    components = write_sbom(sbom)
    status = exit_status(vulnerabilities, licences)
    if vulnerabilities["status"] != "checked":
        print(f"audit: vulnerabilities: {vulnerabilities['status'].upper()}", file=sys.stderr)
    result = {
        "audit": {NOTHING_FOUND: "nothing found", FOUND: "found", NOT_CHECKED: "not checked"}[status],
        "vulnerabilities": vulnerabilities,
        "licences": licences,
        "licences_of_proofs": {"allowed": others["allowed"], "not_installed": len(others["not_installed"])},
        "licences_of_crates": crates,
        "sbom": {"path": str(sbom), "components": components},
    }
    print(json.dumps(result))
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LockError as error:
        sys.exit(f"audit: {error}")
