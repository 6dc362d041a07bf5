"""One damaged answer is no damage: a log on an object store is read again before it is called damaged (rule R16)."""

from __future__ import annotations

import pytest

from efo_service.log.catalog import read_catalog
from efo_service.log.consistency import check_topic
from efo_service.log.objects.files import ObjectFiles
from efo_service.log.reader_offsets import read_readers
from efo_service.relay.doubt import READS, SECONDS, Doubt, is_doubtful
from efo_service.relay.errors import (
    LogError,
    LogIncompleteError,
    LogOwnerError,
    LogVersionError,
    SegmentCorruptError,
    SegmentGoneError,
    SinkError,
    SinkFencedError,
    StoreDeniedError,
    StoreUnavailableError,
    StoreUnfitError,
    TopicNotFoundError,
)
from tests.efo_service.log.objects.logs import STREAM, TOPIC, Log

PAGE = b"<html><body>Sign in to the network</body></html>"


class Lying:
    """Spoils the first answers of each object."""

    def __init__(self, spoil, times: int) -> None:
        self._spoil = spoil
        self._times = times
        self.left: dict[str, int] = {}

    def __call__(self, key: str, content: bytes) -> bytes:
        left = self.left.setdefault(key, self._times)
        self.left[key] = left - 1
        return self._spoil(content) if left > 0 else content


def filled() -> Log:
    log = Log()
    writer = log.writer()
    for _ in range(3):
        log.append(writer, 5)
    log.fold()
    log.append(writer, 5)
    return log


SPOILS = {
    "cut": lambda content: content[: len(content) // 2],
    "nothing": lambda _content: b"",
    "a page": lambda _content: PAGE,
    "json": lambda _content: b'{"message": "Service Unavailable"}',
    "deep json": lambda _content: b"[" * 100_000,
    "changed": lambda content: bytes(byte ^ 1 for byte in content),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS.keys())
@pytest.mark.parametrize("times", [1, READS - 1])
def test_what_is_damaged_in_a_few_answers_is_read_again(spoil, times):
    log = filled()
    log.memory.spoil = Lying(spoil, times)
    check_topic(ObjectFiles(log.memory), TOPIC, STREAM)
    assert read_catalog(ObjectFiles(log.memory), TOPIC).stream == STREAM
    partition = log.partition()
    assert partition.bounds() == (0, 20)
    assert sum(batch.num_rows for batch in partition.parts(0, 20)) == 20
    log.append(log.writer(), 5)
    assert partition.bounds() == (0, 25)


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS.keys())
def test_what_stays_damaged_is_called_so(spoil):
    log = filled()
    log.memory.spoil = lambda key, content: spoil(content) if "commits" in key else content
    with pytest.raises(SegmentCorruptError):
        list(log.partition().parts(0, 20))
    log.memory.spoil = lambda key, content: spoil(content) if key.endswith("catalog.json") else content
    with pytest.raises(LogError):
        read_catalog(ObjectFiles(log.memory), TOPIC)


def test_an_old_copy_of_a_head_in_one_answer_is_read_again():
    log = filled()
    key = f"{TOPIC}/0/head.json"
    old = log.memory.objects[key].content
    log.append(log.writer(), 5)
    log.fold()
    log.compactor().tombstone(log.partition().read_head().head)
    log.memory.spoil = Lying(lambda content: old if content == log.memory.objects[key].content else content, 1)
    assert log.partition().bounds() == (0, 25)


def test_a_reader_that_cannot_be_read_still_counts_as_one_that_has_read_nothing():
    log = filled()
    log.memory.create(f"{TOPIC}/readers/billing.json", PAGE)
    assert [(one.name, one.offsets) for one in read_readers(ObjectFiles(log.memory), TOPIC)] == [("billing", {})]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (LogError("x"), True),
        (SegmentCorruptError("x"), True),
        (LogIncompleteError("x"), True),
        (StoreUnfitError("x"), True),
        (SegmentGoneError("x"), False),
        (TopicNotFoundError("x"), False),
        (StoreUnavailableError("x"), False),
        (StoreDeniedError("x"), False),
        (SinkFencedError("x"), False),
        (SinkError("x"), False),
    ],
)
def test_findings_are_doubted_and_failures_are_not(error, expected):
    assert is_doubtful(error) is expected


def test_a_finding_is_believed_when_it_has_stayed():
    finding, failure, refusal = SegmentCorruptError("x"), StoreUnavailableError("x"), StoreDeniedError("x")
    doubt = Doubt()
    assert not doubt.is_final(failure, 0.0)
    assert doubt.is_final(refusal, 0.0)
    assert doubt.is_final(LogOwnerError("x"), 0.0)
    assert doubt.is_final(LogVersionError("x"), 0.0)
    assert not doubt.is_final(finding, 10.0)
    assert not doubt.is_final(failure, 20.0)
    assert not doubt.is_final(finding, 10.0 + SECONDS - 0.1)
    assert doubt.is_final(finding, 10.0 + SECONDS)
    assert str(doubt.shown(finding)) == "perhaps one damaged answer, so it is read again for 30 s: x"
    assert doubt.shown(failure) is failure
    doubt.settled()
    assert not doubt.is_final(finding, 100.0)
