"""Lock files, the wheel, the source distribution, the image, and the entry point of continuous integration."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hatch_build import with_absolute_links
from tests.paths import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def entries(lock: str) -> list[str]:
    """Return the requirements of a lock file as strings, each with its hashes."""
    text = (ROOT / "requirements" / lock).read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]


def pins(lock: str) -> dict[str, Version]:
    found = (re.match(r"([A-Za-z0-9._-]+)==(\S+)", entry) for entry in entries(lock))
    return {canonicalize_name(match[1]): Version(match[2]) for match in found if match}


def declared(*extras: str) -> list[Requirement]:
    project = PYPROJECT["project"]
    texts = project["dependencies"] + [text for extra in extras for text in project["optional-dependencies"][extra]]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("lock", [path.name for path in LOCKS])
def test_every_pin_has_hashes_and_no_url(lock):
    assert entries(lock)
    for entry in entries(lock):
        assert re.match(r"[A-Za-z0-9._-]+==\S+.* --hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in (ROOT / "requirements" / lock).read_text()


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("service.txt", ["service"]),
        ("spark.txt", ["service", "spark", "kafka"]),
        ("dev.txt", ["service", "spark", "testing", "dev"]),
    ],
)
def test_the_lock_files_satisfy_pyproject(lock, extras):
    locked = pins(lock)
    for requirement in declared(*extras):
        version = locked.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is missing in {lock}: run make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{version}, not {requirement}: run make lock"


@pytest.mark.parametrize("lock", ["service.txt", "spark.txt"])
def test_the_image_has_the_tested_versions(lock):
    tested = pins("dev.txt")
    assert {name: version for name, version in pins(lock).items() if tested.get(name) != version} == {}


def test_the_wheel_has_only_the_packages_and_the_spark_hook(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True, timeout=60
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "efo/py.typed",
        "efo_service/py.typed",
        "efo/model.py",
        "efo_service/cli.py",
        "pyspark_efo.py",
        "pyspark_kinesis.py",
    } <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "efo",
        "efo_service",
        "pyspark_efo.py",
        "pyspark_kinesis.py",
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)
    if (ROOT / ".git").exists():
        built = zipfile.ZipFile(wheel).read("efo_service/commit.txt").decode()
        assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?\n", built)


def test_the_long_description_is_the_readme_with_links_to_the_files_of_this_version():
    metadata = ProjectMetadata(str(ROOT), PluginManager()).core
    project = PYPROJECT["project"]
    repository, tag = project["urls"]["Repository"], f"v{project['version']}"
    readme = (ROOT / "README.md").read_text()
    links = set(re.findall(r"\]\(([^)\s]+)\)", metadata.readme))
    assert {link for link in links if not link.startswith(("https://", "#"))} == set()
    files = {
        match[2]: match[1] for link in links if (match := re.match(rf"{repository}/(blob|raw)/{tag}/([^#]+)", link))
    }
    assert len(files) > 20
    assert [path for path in files if not (ROOT / path).exists()] == []
    assert {path for path, kind in files.items() if kind == "raw"} == set(re.findall(r"!\[[^\]]*\]\(([^)]+)\)", readme))
    assert re.sub(rf"{repository}/(blob|raw)/{tag}/", "", metadata.readme) == readme


@pytest.mark.parametrize(
    ("link", "absolute"),
    [
        ("[a](docs/a.md#b)", "[a](https://x/blob/v1/docs/a.md#b)"),
        ("![a](a.svg)", "![a](https://x/raw/v1/a.svg)"),
        ("[![a](a.svg)](b.md)", "[![a](https://x/raw/v1/a.svg)](https://x/blob/v1/b.md)"),
        ("[`a`](#b) [c](https://d/e) [f](mailto:g@h)",) * 2,
    ],
)
def test_relative_links_alone_become_absolute(link, absolute):
    assert with_absolute_links(link, "https://x/", "v1") == absolute


def test_the_source_distribution_has_every_package():
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    packages = {f"/{path.parent.name}" for path in ROOT.glob("*/__init__.py")}
    assert {"/efo", "/proofs"} <= packages
    assert (packages | {"/service"}) - set(included) == set()
    assert [name for name in included if not (ROOT / name[1:]).exists()] == []


def copied_by_the_dockerfile() -> list[str]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copies = (shlex.split(line)[1:] for line in lines if line.startswith("COPY ") and "--from" not in line)
    return [source for copy in copies for source in copy[:-1]]


def test_files_that_the_image_copies_exist_and_are_not_ignored():
    patterns = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    sources = copied_by_the_dockerfile()
    assert {"efo", "service", "pyproject.toml"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in kept), f"{source} is ignored by .dockerignore"


def test_the_image_runs_an_existing_command():
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r'^ENTRYPOINT \["/opt/efo/bin/efo"\]$', text, re.MULTILINE)
    assert PYPROJECT["project"]["scripts"] == {"efo": "efo_service.__main__:main"}


def test_continuous_integration_runs_the_tests_of_the_code_and_then_those_of_pages_and_runners():
    run = ROOT / ".ci/run"
    assert os.access(run, os.X_OK)
    assert run.read_text().splitlines()[-2:] == ["make test", "exec make test ARGS='-m \"page or runner\"'"]


def test_make_help_lists_the_targets():
    shown = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout  # noqa: S607 - make is found on PATH
    assert {line.split()[1] for line in shown.splitlines()} >= {"help", "demo", "test", "lint", "lock", "clean"}


def test_the_wheel_registers_the_pytest_plugin():
    assert PYPROJECT["project"]["entry-points"]["pytest11"] == {"efo": "efo.testing.plugin"}
