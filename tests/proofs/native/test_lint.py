"""`make lint` of the crates: as far as cargo's programs are installed; cargo-deny refuses what it should."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from proofs.native.build import LOCK, MANIFEST, environment
from proofs.native.lint import TOOLS, plan

DENY = MANIFEST.with_name("deny.toml")
CRATE = """
[package]
name = "example"
version = "0.1.0"
edition = "2021"
license = "{licence}"
publish = {publish}
[workspace]
members = ["other"]
[dependencies]
other = {{ path = "other" }}
"""
OTHER = """
[package]
name = "other"
version = "0.1.0"
edition = "2021"
license = "MIT"
"""
needs_deny = pytest.mark.skipif(
    shutil.which("cargo") is None or shutil.which("cargo-deny") is None, reason="cargo-deny is not installed"
)


def where(*programs):
    return lambda name: f"/bin/{name}" if name in programs else None


def test_without_cargo_nothing_is_run_and_one_line_says_so():
    assert plan(where("cargo-deny")) == ([], ["cargo"])


def test_what_is_installed_is_run_and_the_rest_is_named():
    commands, missing = plan(where("cargo", "cargo-clippy", "cargo-deny"))
    assert [command[:4] for command in commands] == [
        ["/bin/cargo", "clippy", "--manifest-path", str(MANIFEST)],
        ["/bin/cargo", "deny", "--manifest-path", str(MANIFEST)],
    ]
    assert missing == ["cargo-fmt"]
    assert plan(where("cargo", *TOOLS))[1] == []


def deny(manifest, *checks):
    command = ["cargo", "deny", "--manifest-path", manifest, "--config", DENY, "--offline", "check", *checks]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment())


@needs_deny
@pytest.mark.parametrize(
    ("licence", "publish", "check", "refused"),
    [
        ("GPL-3.0-only", "false", "licenses", "error[rejected]"),
        ("MIT", "true", "bans", "error[wildcard]"),
        ("MIT", "false", "bans", ""),
    ],
)
def test_cargo_deny_refuses_a_licence_that_is_not_listed_and_a_version_that_is_any(
    tmp_path, licence, publish, check, refused
):
    (tmp_path / "Cargo.toml").write_text(CRATE.format(licence=licence, publish=publish))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/Cargo.toml").write_text(OTHER)
    for package in (tmp_path, tmp_path / "other"):
        (package / "src").mkdir()
        (package / "src/lib.rs").write_text("")
    done = deny(tmp_path / "Cargo.toml", check)
    assert refused in done.stderr
    assert (done.returncode == os.EX_OK) == (refused == "")


@needs_deny
@pytest.mark.skipif(not LOCK.exists(), reason="efo-native is not built (make native)")
def test_the_crates_of_efo_native_have_listed_licences_one_version_each_and_one_registry():
    done = deny(MANIFEST, "licenses", "bans", "sources")
    assert done.returncode == os.EX_OK, done.stderr
