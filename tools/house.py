"""What the code of efo and of its service weighs, and what stands in it twice: `python -m tools.house`."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from efo.definitions import definition_of
from efo.settings import ConsumerSettings
from efo_service.config.section import Section, section_of
from efo_service.config.settings import Settings
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.spark.pipeline.settings import PipelineSettings

ROOT: Final = Path(__file__).resolve().parent.parent
_DEFINED: Final = (ConsumerSettings, KafkaOptions, PipelineSettings)
"""The dataclasses whose settings the file of the service has too."""

_SURFACES: Final = ("efo/adapters/", "efo/aio/", "efo/sync/")


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


def class_names_twice() -> dict[str, list[str]]:
    """Return the public classes that stand in two or more modules, by their names.

    The surfaces for asyncio and synchronous code have the names of `efo` on purpose: a program changes by an import.
    """
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, module in sources().items():
        for node in () if path.startswith(_SURFACES) else module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}
