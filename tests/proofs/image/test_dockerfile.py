"""The Dockerfile: its stages, what its images promise, and that it is read as an engine reads it."""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ET

import pytest

from proofs.image.dockerfile import DockerfileError, chain, environment, labels, needed, parse, setting
from tests.paths import ROOT

STAGES = parse((ROOT / "Dockerfile").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = ["service", "kafka", "spark"]
POM = "{http://maven.apache.org/POM/4.0.0}"


def test_comments_and_continued_lines_are_read_as_an_engine_reads_them():
    text = 'ARG B=x:1\nFROM ${B} AS a\nRUN one \\\n# a comment\n && two\nENV A=1 B="2 3"\nFROM a\nCOPY --from=a /f /f\n'
    stages = parse(text)
    assert [(stage.name, stage.base) for stage in stages.values()] == [("a", "x:1"), ("1", "a")]
    assert stages["a"].instructions[0].value == "one && two"
    assert environment(chain(stages, "1")) == {"A": "1", "B": "2 3"}


@pytest.mark.parametrize(
    "text", ["RUN x", "FROM a\nRUN <<EOF", "FROM a\nADD x /", "FROM a\nRUN x \\", "FROM --platform=x a b"]
)
def test_what_is_not_understood_is_refused(text):
    with pytest.raises(DockerfileError):
        parse(text)


def test_only_the_stages_that_a_target_needs_are_built():
    assert "service-prefix" not in [stage.name for stage in needed(STAGES, "spark")]
    assert "spark-jars" not in [stage.name for stage in needed(STAGES, "service")]


def test_every_base_has_a_tag_and_a_digest():
    bases = {stage.base for stage in STAGES.values()} - set(STAGES)
    assert bases
    assert [base for base in bases if not re.fullmatch(r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", base)] == []


def test_the_last_stage_is_the_service():
    assert list(STAGES)[-1] == "service"


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_a_numeric_user_stops_on_sigterm_and_starts_without_a_shell(target):
    image = chain(STAGES, target)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", setting(image, "USER").value)
    assert setting(image, "STOPSIGNAL").value == "SIGTERM"
    assert setting(image, "ENTRYPOINT").command == ["/opt/efo/bin/efo"]
    assert setting(image, "CMD").command == ["pipeline" if target == "spark" else "run"]
    assert setting(image, "WORKDIR").value == setting(image, "VOLUME").value == "/var/lib/efo"
    # Nothing after USER needs root, and nothing before it is left to it.
    names = [one.name for one in STAGES[target].instructions]
    assert "RUN" not in names[names.index("USER") :]


@pytest.mark.parametrize("target", ["service", "kafka"])
def test_the_service_asks_itself_for_its_health(target):
    assert setting(chain(STAGES, target), "HEALTHCHECK").command == ["/opt/efo/bin/efo", "healthcheck"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_the_labels_of_oci(target):
    found = {
        name.removeprefix("org.opencontainers.image."): text for name, text in labels(chain(STAGES, target)).items()
    }
    assert {"created", "revision", "source", "title"} <= set(found)
    assert (found["version"], found["licenses"]) == (PROJECT["version"], PROJECT["license"])
    assert found["description"] == PROJECT["description"]


@pytest.mark.parametrize("target", TARGETS)
def test_every_package_is_installed_with_hashes(target):
    commands = [one.value for stage in needed(STAGES, target) for one in stage.instructions if one.name == "RUN"]
    installs = [part for command in commands for part in re.split(r"&&", command) if "pip install" in part]
    assert len(installs) >= 3
    assert [one for one in installs if "--require-hashes" not in one and "--no-deps /dist/*.whl" not in one] == []


def test_a_package_index_and_a_certificate_reach_every_stage_that_fetches_and_no_image():
    fetching = [name for name, stage in STAGES.items() if any("pip install" in one.value for one in stage.instructions)]
    assert len(fetching) == 4
    assert all("build" in {one.name for one in chain(STAGES, name)} for name in [*fetching, "spark-jars"])
    arguments = [one.pairs for one in STAGES["build"].instructions if one.name == "ARG"]
    assert {"PACKAGE_INDEX", "CA_CERTIFICATE"} <= {name for pairs in arguments for name in pairs}
    assert all("build" not in {stage.name for stage in chain(STAGES, target)} for target in TARGETS)


def test_the_image_for_kafka_is_the_service_without_pyarrow():
    def locked(name):
        return set(re.findall(r"^([\w.-]+==\S+)", (ROOT / f"requirements/{name}.txt").read_text(), re.MULTILINE))

    assert locked("kafka") <= locked("service")
    assert {one.partition("==")[0] for one in locked("service") - locked("kafka")} == {"obstore", "pyarrow", "pymysql"}
    assert environment(chain(STAGES, "kafka"))["EFO_RELAY__SINK"] == "kafka"


def test_the_jars_of_the_image_are_those_of_the_tests_with_their_checksums():
    def versions(path, tag):
        root = ET.parse(ROOT / path).getroot()  # noqa: S314 - our own file
        values = {one.tag.removeprefix(POM): one.text for one in root.find(f"{POM}properties") or ()}
        found = {}
        for one in root.iter(f"{POM}{tag}"):
            text = one.find(f"{POM}version").text
            found[one.find(f"{POM}artifactId").text] = values.get(text.strip("${}"), text)
        return found

    image = versions("requirements/spark-jars/pom.xml", "dependency")
    assert image == versions("proofs/e2e/kafka/pom.xml", "artifactItem")
    sums = [line.split() for line in (ROOT / "requirements/spark-jars/jars.sha256").read_text().splitlines()]
    assert sorted(name for _, name in sums) == sorted(f"{name}-{version}.jar" for name, version in image.items())
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest, _ in sums)
