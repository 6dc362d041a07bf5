"""`make native`: build efo-native, check its ABI, and install it beside efo. Without cargo it says so."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from proofs.paths import ROOT, TOOLS

BUILD: Final = ROOT / "build/native"
MANIFEST: Final = ROOT / "native/Cargo.toml"
LOCK: Final = MANIFEST.with_name("Cargo.lock")
CRATES: Final = ROOT / "native/crates.lock"
"""The versions and checksums of the crates: Cargo.lock without the address of their registry."""
_CHECK: Final = "from efo.protocol.native import DECODER; print(DECODER.detail); raise SystemExit(DECODER.step is None)"


def main() -> int:
    """Build and install. Return the exit status: 0 also if there is no cargo."""
    argparse.ArgumentParser("make native", description=__doc__).parse_args()
    cargo = shutil.which("cargo")
    if cargo is None:
        print("native: there is no cargo (https://rustup.rs), so efo reads records by the Python step")
        return os.EX_OK
    shutil.rmtree(BUILD, ignore_errors=True)
    ensure_lock(cargo)
    command = [TOOLS / "native/bin/maturin", "build", "--quiet", "--release", "--locked", "--out", BUILD]
    subprocess.run([*map(str, command), "-m", str(MANIFEST)], check=True, cwd=ROOT, env=environment())
    (wheel,) = BUILD.glob("*.whl")
    # That it calls nothing but the stable ABI of the Python that its name says.
    subprocess.run([str(TOOLS / "native/bin/abi3audit"), "--strict", str(wheel)], check=True, cwd=ROOT)
    for python in (Path(sys.executable), TOOLS / "fuzz/bin/python"):
        if python.exists():
            install = ["pip", "install", "--quiet", "--reinstall", "--no-deps", "--python", str(python), str(wheel)]
            subprocess.run([str(TOOLS / "uv/bin/uv"), *install], check=True, cwd=ROOT)
    return subprocess.run([sys.executable, "-c", _CHECK], check=False, cwd=ROOT).returncode


def passes_with_sanitizer() -> bool | None:
    """Run the parser's tests, 100,000 mutated inputs among them, with the address sanitizer. None without cargo.

    A stable compiler has it, too, if it may use what is not stable yet.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        return None
    reported = subprocess.run([cargo, "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search(r"^host: (\S+)$", reported, re.MULTILINE)
    assert host is not None  # noqa: S101 - cargo prints it
    variables = {"RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": "-Zsanitizer=address"}
    command = [cargo, "test", "--quiet", "--locked", "-p", "efo-parser", "--target", host[1]]
    command += ["--manifest-path", str(MANIFEST)]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment() | variables).returncode == 0


def environment() -> dict[str, str]:
    """Return the environment of cargo: what it compiles is kept outside of native/, and for this Python."""
    return {"CARGO_TARGET_DIR": str(ROOT / "build/native-target"), "PYO3_PYTHON": sys.executable, **os.environ}


def ensure_lock(cargo: str) -> None:
    """Write Cargo.lock, if it is not that of crates.lock: its crates, from the registry that cargo uses here."""
    crates = CRATES.read_text()
    if LOCK.exists() and LOCK.read_text() == with_source(crates, _source(LOCK)):
        return
    LOCK.unlink(missing_ok=True)
    subprocess.run([cargo, "generate-lockfile", "--quiet", "--manifest-path", str(MANIFEST)], check=True)
    LOCK.write_text(with_source(crates, _source(LOCK)))


def _source(lock: Path) -> str:
    """Return the line of a lock that says where its crates are from."""
    source = re.search(r"^source = .*$", lock.read_text(), re.MULTILINE)
    assert source is not None  # noqa: S101 - there are crates
    return source[0]


def with_source(crates: str, source: str) -> str:
    """Return the lock with a line that says where each crate with a checksum is from."""
    return crates.replace("\nchecksum = ", f"\n{source}\nchecksum = ")


if __name__ == "__main__":
    sys.exit(main())
