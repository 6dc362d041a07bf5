"""The variants of the manifests, and the settings that their pods have."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import yaml

from efo_service.config.loading import load
from efo_service.config.section import Section, section_of, variable
from efo_service.config.settings import Settings
from proofs.image.dockerfile import chain, parse, setting
from proofs.manifests.agreement import disagreements
from proofs.paths import ROOT

KUBERNETES: Final = ROOT / "config" / "kubernetes"
VARIANTS: Final = tuple(sorted(path.name for path in (KUBERNETES / "overlays").iterdir()))
FILE: Final = "EFO_CONFIG"
"""The environment variable that names the file of the settings."""


def resources(text: str) -> list[dict[str, Any]]:
    """Return the resources of a YAML text."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def settings_of(found: Sequence[Mapping[str, Any]]) -> Settings:
    """Return the settings that the pods have: of the ConfigMap and of their environment. Raises ConfigurationError."""
    text = next(one["data"]["efo.toml"] for one in found if one["kind"] == "ConfigMap")
    deployment = next(one for one in found if one["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    values = {one["name"]: one.get("value", one["name"].lower()) for one in container["env"] if one["name"] != FILE}
    own = {name: value for name, value in os.environ.items() if not name.startswith("EFO_")}
    with tempfile.TemporaryDirectory() as directory, patch.dict(os.environ, own | values, clear=True):
        file = Path(directory, "efo.toml")
        file.write_text(text)
        return load(file)


def problems(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what does not fit together in a variant."""
    service = settings_of(found).service
    user = setting(chain(parse((ROOT / "Dockerfile").read_text()), "service"), "USER")
    values = {"port": service.port, "drain_seconds": service.drain_seconds}
    yield from disagreements(found, values, known_variables(), "" if user is None else user.value)


def known_variables() -> frozenset[str]:
    """Return the names of all environment variables that efo knows."""
    names = {FILE}
    for name, field in Settings.model_fields.items():
        section = section_of(field)
        if section is not None:
            names |= set(_variables(section, name))
    return frozenset(names)


def _variables(section: type[Section], *names: str) -> Iterator[str]:
    for key, field in section.model_fields.items():
        if (inner := section_of(field)) is not None:
            yield from _variables(inner, *names, key)
        else:
            yield variable(*names, key)
