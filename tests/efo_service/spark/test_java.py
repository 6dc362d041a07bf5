from pathlib import Path

import pytest

from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java


@pytest.fixture
def fake_java(tmp_path: Path):
    def make(output: str, code: int = 0) -> dict[str, str]:
        path = tmp_path / "bin" / "java"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit {code}\n")
        path.chmod(0o755)
        return {"PATH": str(path.parent)}

    return make


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_the_java_on_path_is_found(fake_java, tmp_path, output, version) -> None:
    java = find_java(fake_java(output))
    assert (java.path, java.version) == (tmp_path / "bin" / "java", version)
    assert output in java.build


def test_java_home_overrides_path(fake_java, tmp_path) -> None:
    fake_java('openjdk version "17.0.1"')
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}).version == 17


def test_no_java_is_an_error_with_advice() -> None:
    with pytest.raises(JavaMissingError, match=r"no java on PATH.*Install it"):
        find_java({"PATH": "/nowhere"})


def test_a_java_home_without_java_is_an_error(tmp_path) -> None:
    with pytest.raises(JavaMissingError, match=r"\(from JAVA_HOME\) does not run"):
        find_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize("output", ['java version "1.8.0_392"', 'openjdk version "11.0.2"', "hello", ""])
def test_a_java_that_is_too_old_is_an_error(fake_java, output) -> None:
    with pytest.raises(JavaMissingError, match="too old"):
        find_java(fake_java(output))


def test_a_java_that_fails_is_an_error(fake_java) -> None:
    with pytest.raises(JavaMissingError, match="does not run"):
        find_java(fake_java("no memory", 1))
