"""`make release VERSION=0.2.0`: one commit with the version in its places and the notes dated, and its annotated tag.

The version stands in pyproject.toml and native/Cargo.toml; `efo.__version__` and the images take it from there. The
section [Unreleased] of CHANGELOG.md becomes that of the version, and its text the message of the tag. Nothing is
pushed: `git push --follow-tags` starts .github/workflows/release.yml.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_IN_FILE: Final = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_HEADING: Final = re.compile(r"^## \[Unreleased\][^\n]*\n", re.MULTILINE)
FILES: Final = ("pyproject.toml", "native/Cargo.toml")


class ReleaseError(Exception):
    """A release cannot be made. The message says what to do."""


def with_version(text: str, version: str) -> str:
    """Return a file with another version. Raises ReleaseError."""
    if len(_IN_FILE.findall(text)) != 1:
        raise ReleaseError('the line `version = "..."` must stand once')
    return _IN_FILE.sub(f'version = "{version}"', text)


def with_notes(changelog: str, version: str, day: dt.date) -> tuple[str, str]:
    """Return the changelog with a dated section, and that section's text. Raises ReleaseError."""
    heading = _HEADING.search(changelog)
    if heading is None:
        raise ReleaseError("CHANGELOG.md has no section [Unreleased]")
    after = changelog[heading.end() :]
    notes = re.split(r"^## \[", after, maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not notes:
        raise ReleaseError("the section [Unreleased] of CHANGELOG.md is empty: what does this release change?")
    dated = f"## [Unreleased]\n\n## [{version}] - {day.isoformat()}\n"
    return changelog[: heading.start()] + dated + after, notes


def release(root: Path, version: str, day: dt.date) -> str:
    """Write the files, commit and tag. Return the name of the tag. Raises ReleaseError."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"VERSION={version!r}: expected a version such as 0.2.0 or 0.2.0rc1")
    if _git(root, "status", "--porcelain"):
        raise ReleaseError("the checkout has changes that are not committed: commit or stash them")
    tag = f"v{version}"
    if _git(root, "tag", "--list", tag):
        raise ReleaseError(f"{tag} exists")
    changelog, notes = with_notes((root / "CHANGELOG.md").read_text(), version, day)
    changed = {root / name: with_version((root / name).read_text(), version) for name in FILES}
    for path, text in {**changed, root / "CHANGELOG.md": changelog}.items():
        path.write_text(text)
    _git(root, "commit", "--quiet", "--message", f"Release {version}", "--", *FILES, "CHANGELOG.md")
    # Verbatim: a heading of the notes would be a comment of git's otherwise.
    _git(root, "tag", "--annotate", "--cleanup=verbatim", "--message", f"efo {version}\n\n{notes}\n", tag)
    return tag


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["/usr/bin/env", "git", *arguments], cwd=root, capture_output=True, text=True, check=False)  # noqa: S603 - git
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    """Parse the command line, and make the release."""
    parser = argparse.ArgumentParser("make release", description=__doc__, epilog="example: make release VERSION=0.2.0")
    parser.add_argument("version", help="such as 0.2.0 or 0.2.0rc1")
    arguments = parser.parse_args()
    try:
        tag = release(ROOT, arguments.version, dt.datetime.now(dt.UTC).date())
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"{tag} is committed and tagged. Next: make release-check ARGS='--tag {tag}', then git push --follow-tags")
    return 0


if __name__ == "__main__":
    sys.exit(main())
