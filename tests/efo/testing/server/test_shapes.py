"""Compares the table of input shapes with botocore's service model."""

from __future__ import annotations

import re

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
    """Yield the differences between our shape and botocore's."""
    actual = {"min": ours.minimum, "max": ours.maximum, "pattern": ours.pattern, "enum": list(ours.values) or None}
    actual = {name: value for name, value in actual.items() if value is not None}
    expected = constraints(theirs)
    if path.endswith("ResourceARN"):  # of botocore 1.44, newer than what aiobotocore allows
        expected["pattern"] = expected["pattern"].replace("(stream|channel)", "(stream|channel|queue)")
    if path.endswith("ConsumerARN"):
        expected["pattern"] = expected["pattern"].replace("\\/", "/")
        actual["pattern"] = actual["pattern"].replace("\\/", "/")
    if (theirs.type_name, expected) != (ours.kind, actual):
        yield path, (theirs.type_name, expected), (ours.kind, actual)
    if theirs.type_name == "structure":
        if set(theirs.members) != set(ours.members):
            yield path, set(theirs.members), set(ours.members)
        for name, member in theirs.members.items():
            if (name in theirs.required_members) != ours.members[name].required:
                yield f"{path}.{name}", "required"
            yield from differences(f"{path}.{name}", member, ours.members[name])
    elif theirs.type_name == "list":
        yield from differences(f"{path}[]", theirs.member, ours.element)
    elif theirs.type_name == "map":
        yield from differences(f"{path}{{}}", theirs.value, ours.element)
        yield from differences(f"{path}.keys", theirs.key, ours.keys)


@pytest.mark.parametrize("operation", sorted(INPUTS))
def test_every_input_shape_matches_the_service_model(model, operation):
    theirs = model.operation_model(operation).input_shape
    assert list(differences(operation, theirs, INPUTS[operation])) == []


def test_every_supported_operation_has_an_input_shape():
    assert set(INPUTS) == {*OPERATIONS, "SubscribeToShard"}


NOT_SERVED = {"UpdateAccountSettings", "UpdateStreamWarmThroughput"}
"""With all operations on channels and queues: docs/fake.md."""


def test_operations_that_are_not_served_are_unknown(model, make_api):
    others = set(model.operation_names) - set(INPUTS)
    assert {name for name in others if not re.search("Channel|Queue", name)} == NOT_SERVED
    for operation in (*others, "CreateQueue", "ReceiveQueueRecords"):
        answer = make_api().raw(f"Kinesis_20131202.{operation}", b"{}")
        assert answer == (400, {"__type": "UnknownOperationException"})
