"""What a release says about itself in the checkout: its version, its workflows, its licences, its bill of materials."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Final

from proofs.paths import ROOT, TOOLS
from proofs.release.commands import CheckError, run

WORKFLOWS: Final = ROOT / ".github/workflows"
_USES: Final = re.compile(r"^\s*-?\s*uses:\s*(\S+)", re.MULTILINE)
_PINNED: Final = re.compile(r"[\w./-]+@[0-9a-f]{40}")
_MAKE: Final = re.compile(r"^\s*-?\s*run:\s*make ([a-z-]+)", re.MULTILINE)


def versions(tag: str = "") -> str:
    """Check that all places have the same version. `tag`: that of the release, if it is made. Raises CheckError."""
    project: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    native = tomllib.loads((ROOT / "native/Cargo.toml").read_text())["workspace"]["package"]["version"]
    found = {
        "pyproject.toml": project,
        "native/Cargo.toml": native,
        **({"the tag": tag.removeprefix("v")} if tag else {}),
    }
    if len(set(found.values())) != 1:
        raise CheckError(f"versions differ: {', '.join(f'{where} {version}' for where, version in found.items())}")
    heading = f"## [{project}]" if tag else "## ["
    if heading not in (ROOT / "CHANGELOG.md").read_text():
        raise CheckError(f"CHANGELOG.md has no section {heading}")
    return project


def workflows() -> str:
    """Check the workflows by actionlint and zizmor, that each action is pinned and each target exists."""
    files = sorted(WORKFLOWS.glob("*.yml"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= set(re.findall(r'^ {8}Proof\("([a-z0-9-]+)"', (ROOT / "proofs/catalog.py").read_text(), re.MULTILINE))
    for file in files:
        text = file.read_text()
        if loose := [one for one in _USES.findall(text) if not _PINNED.fullmatch(one)]:
            raise CheckError(f"{file.name}: {loose[0]} is not pinned to a commit")
        if unknown := set(_MAKE.findall(text)) - targets:
            raise CheckError(f"{file.name}: no target of make is {min(unknown)}")
    actionlint = TOOLS / "actionlint/bin/actionlint"
    linted = "actionlint"
    if actionlint.exists():
        run([actionlint, "-color=false", *files])
    else:
        linted = "actionlint skipped: there is no Go"
    run([TOOLS / "delivery/bin/zizmor", "--offline", "--no-progress", "--color=never", ROOT / ".github"])
    return f"{len(files)} files, {linted}, zizmor"


def audited(sbom: Path) -> str:
    """Audit licences and known vulnerabilities, and write the bill of materials. Raises CheckError."""
    try:
        output = run(["make", "audit", f"ARGS=--sbom {sbom}"])
    except CheckError as error:
        if "ended with" in str(error) and '"audit": "not checked"' in str(error) and sbom.exists():
            return f"{_components(sbom)}; not all was checked: a service for vulnerabilities or cargo is missing"
        raise
    return f"{_components(sbom)}; {json.loads(output.splitlines()[-1])['audit']}"


def _components(sbom: Path) -> str:
    return f"SBOM with {len(json.loads(sbom.read_text())['components'])} components"


def site() -> str:
    """Build the site, with its references. Its examples are run by `make docs`."""
    run(["make", "docs", "ARGS=--no-run"])
    pages = list((ROOT / "build/site").rglob("*.html"))
    if not (ROOT / "build/site/index.html").exists():
        raise CheckError("the site has no index.html")
    return f"{len(pages)} pages"


def images(targets: str) -> str:
    """Build the images and try them, where that is possible. Raises CheckError."""
    if any(shutil.which(tool) is None for tool in ("buildah", "runc", "debootstrap")):
        return "skipped: there is no buildah, runc or debootstrap"
    chosen = " ".join(f"--target {target}" for target in targets.split(","))
    run(["make", "image-test", f"ARGS={chosen}"], timeout=3_600.0)
    return targets
