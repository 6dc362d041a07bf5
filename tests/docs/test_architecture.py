"""ARCHITECTURE.md: the places, folders and packages that it names exist, and none is missing."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.paths import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
DECISIONS = (ROOT / "docs" / "decisions.md").read_text()
PLACES = re.findall(r"^\| ([^|]+) \| `([^`]+\.py)` `(\w+)` \|$", PAGE, re.MULTILINE)


def section(title: str, page: str = PAGE) -> str:
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_says_where_two_dozen_behaviours_are():
    rows = [line for line in section("Where is ...").splitlines() if line.startswith("| ")]
    assert len(PLACES) == len(rows) - 1  # every row but the header has a place
    assert len(PLACES) >= 24
    assert len({behaviour for behaviour, _, _ in PLACES}) == len(PLACES)


@pytest.mark.parametrize(("behaviour", "path", "name"), PLACES, ids=[behaviour for behaviour, _, _ in PLACES])
def test_the_place_of_a_behaviour_defines_the_name(behaviour, path, name):
    tree = ast.parse((ROOT / path).read_text())
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_the_page_can_be_read_at_once_and_names_files_to_begin_with():
    assert PAGE.count("\n") <= 210
    first = re.findall(r"`([\w/]+\.py)`", PAGE.partition("## The house")[0])
    assert [path for path in first if not (ROOT / path).exists()] == []
    assert len(first) == 3


def test_the_modules_of_the_rules_exist():
    paths = set(re.findall(r"`([\w/]+(?:\.py|/))`", section("Theory of operation")))
    assert len(paths) > 12
    assert [path for path in paths if not (ROOT / path).exists() and not (ROOT / "efo" / path).exists()] == []


def test_every_folder_of_modules_is_in_the_house():
    house = section("The house")
    folders = {path.parent for root in ("efo", "service/efo_service", "proofs") for path in (ROOT / root).rglob("*.py")}
    missing = [f"{folder.name}/" for folder in folders if f"{folder.name}/" not in house and "." not in folder.name]
    known_below = {
        "dynamodb/",
        "postgres/",
        "redis/",
        "sqlite/",
        "kafka/",
        "python/",
        "log/",
    }  # listed with their parents
    assert set(missing) - known_below == set()


def test_every_declared_package_is_justified():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    justified = section("Dependencies", DECISIONS).replace("-exporter", "opentelemetry-exporter")
    assert [one for one in declared if Requirement(one).name not in justified] == []
