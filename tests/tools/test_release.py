"""`make release`: one commit with the version and dated notes, and its tag; or a sentence about what is in the way."""

from __future__ import annotations

import datetime as dt
import subprocess

import pytest

from tools.release import FILES, ReleaseError, release, with_notes, with_version

DAY = dt.date(2027, 1, 31)
CHANGELOG = (
    "# Changelog\n\n## [Unreleased]: what is next\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-12-01\n\n- First.\n"
)


def git(root, *arguments):
    command = ["/usr/bin/env", "git", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path):
    git(tmp_path, "init", "--quiet")
    for name, value in {"user.name": "efo", "user.email": "efo@example.com", "commit.gpgsign": "false"}.items():
        git(tmp_path, "config", name, value)
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def test_a_release_is_one_commit_and_an_annotated_tag_with_its_notes(checkout):
    assert release(checkout, "0.2.0", DAY) == "v0.2.0"
    assert [(checkout / name).read_text() for name in FILES] == ['[project]\nversion = "0.2.0"\n'] * 2
    assert "## [Unreleased]\n\n## [0.2.0] - 2027-01-31\n\n### Added\n" in (checkout / "CHANGELOG.md").read_text()
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "log", "-1", "--format=%s") == "Release 0.2.0\n"
    assert (
        git(checkout, "tag", "-l", "--format=%(contents)", "v0.2.0").strip() == "efo 0.2.0\n\n### Added\n\n- A thing."
    )


def test_the_notes_are_the_text_until_the_former_release():
    changed, notes = with_notes(CHANGELOG, "0.2.0", DAY)
    assert notes == "### Added\n\n- A thing."
    assert changed.endswith("## [0.1.0] - 2026-12-01\n\n- First.\n")


@pytest.mark.parametrize(
    ("version", "message"),
    [("0.2", "expected a version"), ("v0.2.0", "expected a version"), ("", "expected a version")],
)
def test_what_is_no_version_is_refused(checkout, version, message):
    with pytest.raises(ReleaseError, match=message):
        release(checkout, version, DAY)


def test_a_release_that_exists_is_refused(checkout):
    git(checkout, "tag", "v0.2.0")
    with pytest.raises(ReleaseError, match=r"v0\.2\.0 exists"):
        release(checkout, "0.2.0", DAY)


def test_a_checkout_with_changes_is_refused(checkout):
    (checkout / "CHANGELOG.md").write_text("")
    with pytest.raises(ReleaseError, match="not committed"):
        release(checkout, "0.2.0", DAY)


@pytest.mark.parametrize(
    ("changelog", "message"), [("# Changelog\n", "no section"), ("## [Unreleased]\n\n## [0.1.0]\n", "is empty")]
)
def test_a_release_without_notes_is_refused(changelog, message):
    with pytest.raises(ReleaseError, match=message):
        with_notes(changelog, "0.2.0", DAY)


def test_a_file_with_two_versions_is_refused():
    with pytest.raises(ReleaseError, match="must stand once"):
        with_version('version = "1"\nversion = "2"\n', "3")
