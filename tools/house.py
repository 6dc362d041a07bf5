"""What the code of efo and of its service weighs, and what stands in it twice: `make house`.

The last line is one JSON object: each measure, beside its value before the house was put in order. `--before COMMIT`
measures that commit instead, as far as its text alone says it.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Final

import efo
from efo.definitions import definition_of
from efo.settings import ConsumerSettings
from efo_service.config.section import Section, section_of
from efo_service.config.settings import Settings
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.spark.pipeline.settings import PipelineSettings
from tools.handoffs import handoffs

ROOT: Final = Path(__file__).resolve().parent.parent
_DEFINED: Final = (ConsumerSettings, KafkaOptions, PipelineSettings)
"""The dataclasses whose settings the file of the service has too."""

_FOLDERS: Final = ("efo", "service/efo_service")
BEFORE: Final = {
    "lines": 62_911,
    "modules": 557,
    "median": 94,
    "circles": 6,
    "class_names_twice": 32,
    "public_names": 164,
    "settings_stated_twice": 61,
    "handoffs": 16,
}
"""Of commit e6f20e3b. Settings: those that a factory copied from one dataclass to another, each by hand. Hand-offs: as
counted by hand."""
_SURFACES: Final = ("efo/adapters/", "efo/aio/", "efo/sync/")


@cache
def sources() -> dict[str, ast.Module]:
    """Return the parsed modules of the library and of the service, by their paths."""
    paths = sorted([*(ROOT / "efo").rglob("*.py"), *(ROOT / "service" / "efo_service").rglob("*.py")])
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


def settings_stated_twice() -> list[str]:
    """Return the settings whose sentence, default or bounds stand in two places."""
    sentences = Counter(_sentences(sources()))
    return [*(text for text, times in sentences.items() if times > 1), *_defined_again()]


def _sentences(modules: Mapping[str, ast.Module]) -> Iterator[str]:
    for module in modules.values():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"Field", "setting"}:
                of_keyword = [keyword.value for keyword in node.keywords if keyword.arg == "description"]
                of_place = node.args[1:2] if node.func.id == "setting" else []
                yield from (
                    one.value
                    for one in (*of_keyword, *of_place)
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                )


def _defined_again() -> Iterator[str]:
    """Yield the settings of the file that have the name of one of a dataclass, and are not made from it."""
    for kind in _DEFINED:
        for one in fields(kind):
            definition = definition_of(one)
            found = [
                f"[{'.'.join(names)}] {one.name}"
                for names, section in _sections()
                if _owner(names) is kind
                and one.name in section.model_fields
                and definition is not None
                and section.model_fields[one.name].description != definition.sentence
            ]
            yield from found


def _owner(names: tuple[str, ...]) -> type | None:
    match names:
        case ("consumer",) | ("leases",) | ("relay",):
            return ConsumerSettings
        case ("relay", "kafka"):
            return KafkaOptions
        case ("pipeline",):
            return PipelineSettings
    return None


def _sections(section: type[Section] | None = None, *names: str) -> Iterator[tuple[tuple[str, ...], type[Section]]]:
    known = Settings.model_fields if section is None else section.model_fields
    for name, field in known.items():
        if (inner := section_of(field)) is not None:
            yield (*names, name), inner
            yield from _sections(inner, *names, name)


def class_names_twice(modules: Mapping[str, ast.Module] | None = None) -> dict[str, list[str]]:
    """Return the public classes that stand in two or more modules, by their names.

    The surfaces for asyncio and synchronous code have the names of `efo` on purpose: a program changes by an import.
    """
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, module in (sources() if modules is None else modules).items():
        for node in () if path.startswith(_SURFACES) else module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def circles(modules: Mapping[str, ast.Module]) -> list[list[str]]:
    """Return the groups of siblings in a package that import each other, directly or through others."""
    names = {_name(path): module for path, module in modules.items()}
    edges: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, module in names.items():
        for imported in _imports(module, names):
            mine, other = name.split("."), imported.split(".")
            at = next((n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), None)
            if at:  # at 0 they are of two distributions
                edges[".".join(mine[:at])][mine[at]].add(other[at])
    return [sorted(group) for package in edges.values() for group in _strongly_connected(package)]


def _name(path: str) -> str:
    return path.removeprefix("service/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(module: ast.Module, names: Collection[str]) -> Iterator[str]:
    skipped = {
        id(inner)
        for node in ast.walk(module)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            found = {f"{node.module}.{alias.name}" for alias in node.names}.intersection(names)
            yield from found or {str(node.module)}.intersection(names)


def _strongly_connected(edges: Mapping[str, set[str]]) -> list[set[str]]:
    reach = {one: _reachable(one, edges) for one in edges}
    groups = {frozenset(other for other in reach[one] if one in reach.get(other, ())) for one in edges}
    return [set(group) for group in groups if len(group) > 1]


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    found, todo = set[str](), [start]
    while todo:
        for other in edges.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def of_text(texts: Mapping[str, str]) -> dict[str, float]:
    """Return what the text of modules says, by their paths."""
    modules = {path: ast.parse(text) for path, text in texts.items()}
    sizes = sorted(text.count("\n") for text in texts.values())
    return {
        "lines": sum(sizes),
        "modules": len(sizes),
        "median": sizes[len(sizes) // 2],
        "circles": len(circles(modules)),
        "class_names_twice": len(class_names_twice(modules)),
    }


def _texts(commit: str | None) -> dict[str, str]:
    if commit is None:
        return {path: (ROOT / path).read_text() for path in sources()}
    git = ("git", "-C", str(ROOT))
    listed = subprocess.run((*git, "ls-tree", "-r", "--name-only", commit, *_FOLDERS), capture_output=True, text=True)  # noqa: S603, PLW1510 - of this repository
    listed.check_returncode()
    return {
        path: subprocess.run((*git, "show", f"{commit}:{path}"), capture_output=True, text=True, check=True).stdout  # noqa: S603 - the same
        for path in listed.stdout.splitlines()
        if path.endswith(".py")
    }


def main() -> int:
    """Measure, and print the measures beside those before."""
    parser = argparse.ArgumentParser(prog="make house", description=__doc__.partition("\n")[0])
    parser.add_argument("--before", metavar="COMMIT", help="measure this commit of the repository")
    options = parser.parse_args()
    measured = of_text(_texts(options.before))
    if options.before is None:
        way = handoffs()
        for line in (*class_names_twice(), *settings_stated_twice(), *(f"{one} -> {other}" for one, other in way)):
            print(line)
        measured |= {
            "public_names": len(efo.__all__),
            "settings_stated_twice": len(settings_stated_twice()),
            "handoffs": len(way),
        }
        print(json.dumps({name: {"now": value, "before": BEFORE[name]} for name, value in measured.items()}))
    else:
        print(json.dumps(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
