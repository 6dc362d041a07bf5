from efo.testing.assignment import check_assignment as check_assignment
from efo.testing.fake import FakeKinesis as FakeKinesis
from efo.testing.faults.script import (
    ALWAYS as ALWAYS,
    FaultScript as FaultScript,
    When as When,
    load_faults as load_faults,
)
from efo.testing.in_memory import (
    CheckpointRecorder as CheckpointRecorder,
    InMemoryStream as InMemoryStream,
    make_batch as make_batch,
    virtual_time as virtual_time,
)
from efo.testing.lease_store import check_lease_store as check_lease_store
from efo.testing.settings import FakeSettings as FakeSettings
from efo.testing.sigv4 import Credential as Credential
from efo.testing.thread import FakeKinesisThread as FakeKinesisThread
