"""Whether a resource has the fields of its kind, by the schemas of Kubernetes and of custom resource definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import kubernetes_validate
from jsonschema import Draft202012Validator

KUBERNETES: Final = "1.37"
"""The version whose schemas are used."""

Resource = Mapping[str, Any]
CustomSchemas = Mapping[tuple[str, str], Mapping[str, Any]]
"""Schemas by apiVersion and kind."""


def custom_schemas(definitions: Iterable[Resource]) -> CustomSchemas:
    """Return the schemas of all versions in CustomResourceDefinitions. They refuse unknown fields."""
    return {
        (f"{spec['group']}/{version['name']}", spec["names"]["kind"]): _strict(version["schema"]["openAPIV3Schema"])
        for spec in (definition["spec"] for definition in definitions)
        for version in spec["versions"]
    }


def _strict(schema: Any) -> Any:
    """Return a schema that refuses properties it does not name, unless it keeps unknown ones."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        strict.pop("type", None)
    return strict


def errors(resource: Resource, custom: CustomSchemas) -> Iterator[str]:
    """Yield what is wrong with a resource. A kind without a schema is an error too: nothing was checked."""
    name = f"{resource['kind']} {resource['metadata']['name']}"
    schema = custom.get((resource["apiVersion"], resource["kind"]))
    if schema is not None:
        body = {key: value for key, value in resource.items() if key not in {"apiVersion", "kind", "metadata"}}
        for error in Draft202012Validator(schema).iter_errors(body):
            yield f"{name}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        return
    try:
        kubernetes_validate.validate(dict(resource), KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{name}: {'.'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError:
        yield f"{name}: no schema for {resource['apiVersion']}"
