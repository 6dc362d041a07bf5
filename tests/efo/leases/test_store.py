"""What belongs to the interface of lease stores."""

import pytest

from efo.errors import ConfigurationError
from efo.leases.store import Inspection, LeaseScope, streams_of
from efo.model import Checkpoint, Lease


def test_the_streams_of_leases_are_named_once_each_and_the_oldest_first():
    leases = [Lease("s", Checkpoint("5"), stream_created_at=at) for at in (2.0, None, 1.0, 2.0)]
    assert streams_of(leases) == (1.0, 2.0)
    assert streams_of(leases[1:2]) == Inspection(exists=True).created_at == ()


def test_a_scope_without_names_gets_those_of_its_first_consumer():
    scope = LeaseScope()
    for _ in range(2):
        scope.ensure("app", "orders")
    assert (scope.application, scope.stream) == ("app", "orders")
    for application, stream in (("other", "orders"), ("app", "clicks")):
        with pytest.raises(ConfigurationError, match="the lease store belongs to the"):
            scope.ensure(application, stream)
    assert (scope.application, scope.stream) == ("app", "orders")


def test_a_scope_takes_the_name_of_a_stream_from_its_arn():
    scope = LeaseScope("app", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders")
    assert scope.stream == "orders"
    assert LeaseScope("app").stream is None
