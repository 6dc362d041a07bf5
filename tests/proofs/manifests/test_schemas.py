"""Schemas: unknown and wrong fields are errors, of Kubernetes' own kinds and of custom ones."""

from __future__ import annotations

import pytest

from proofs.manifests.schemas import custom_schemas, errors

PROPERTIES = {
    "kind": {"type": "string"},
    "spec": {
        "type": "object",
        "required": ["target"],
        "properties": {
            "target": {"type": "object", "properties": {"name": {"type": "string"}}},
            "port": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {}},
        },
    },
}
CUSTOM = custom_schemas(
    [
        {
            "spec": {
                "group": "x.io",
                "names": {"kind": "Scaled"},
                "versions": [
                    {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": PROPERTIES}}}
                ],
            }
        }
    ]
)


def scaled(**spec):
    return {"apiVersion": "x.io/v1", "kind": "Scaled", "metadata": {"name": "efo"}, "spec": spec}


def test_a_custom_resource_that_fits_has_no_errors():
    assert list(errors(scaled(target={"name": "efo"}, port="http", any={"a": 1}), CUSTOM)) == []


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (scaled(), "spec: 'target' is a required property"),
        (scaled(target={"nam": "efo"}), "spec.target: Additional properties are not allowed"),
        (scaled(target={"name": 1}), "spec.target.name: 1 is not of type 'string'"),
        ({**scaled(target={}), "specs": {}}, "('specs' was unexpected)"),
        ({**scaled(), "apiVersion": "x.io/v2"}, "no schema for x.io/v2"),
        ({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"prots": []}}, "prots"),
    ],
)
def test_what_does_not_fit_is_an_error(resource, error):
    (found,) = errors(resource, CUSTOM)
    assert error in found
