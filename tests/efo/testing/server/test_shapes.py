"""The table of shapes against the service model that botocore carries: the independent side."""

from __future__ import annotations

import botocore.session
import pytest

from efo.testing.operations.table import OPERATIONS
from efo.testing.server.shapes import INPUTS


@pytest.fixture(scope="module")
def model():
    return botocore.session.get_session().get_service_model("kinesis")


def constraints(shape):
    return {name: value for name, value in shape.metadata.items() if name in {"min", "max", "pattern", "enum"}}


def differences(path, theirs, ours):
    """Yield where our shape says another thing than botocore's."""
    said = {"min": ours.least, "max": ours.most, "pattern": ours.pattern, "enum": list(ours.values) or None}
    said = {name: value for name, value in said.items() if value is not None}
    wanted = constraints(theirs)
    if path.endswith("ConsumerARN"):
        wanted["pattern"] = wanted["pattern"].replace("\\/", "/")
        said["pattern"] = said["pattern"].replace("\\/", "/")
    if (theirs.type_name, wanted) != (ours.kind, said):
        yield path, (theirs.type_name, wanted), (ours.kind, said)
    if theirs.type_name == "structure":
        if set(theirs.members) != set(ours.members):
            yield path, set(theirs.members), set(ours.members)
        for name, member in theirs.members.items():
            if (name in theirs.required_members) != ours.members[name].required:
                yield f"{path}.{name}", "required"
            yield from differences(f"{path}.{name}", member, ours.members[name])
    elif theirs.type_name == "list":
        yield from differences(f"{path}[]", theirs.member, ours.of)
    elif theirs.type_name == "map":
        yield from differences(f"{path}{{}}", theirs.value, ours.of)
        yield from differences(f"{path}.keys", theirs.key, ours.keys)


@pytest.mark.parametrize("operation", sorted(INPUTS))
def test_every_input_is_constrained_as_in_the_service_model(model, operation):
    theirs = model.operation_model(operation).input_shape
    assert list(differences(operation, theirs, INPUTS[operation])) == []


def test_every_operation_that_is_served_has_a_shape():
    assert set(INPUTS) == {*OPERATIONS, "SubscribeToShard"}
