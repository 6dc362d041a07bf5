"""What two endpoints answered to the same calls, made comparable, and where it differs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Observation = dict[str, Any]
"""A response: status and body. Of a subscription: its messages. Of a failure: its kind."""

MISSING: Final = "(missing)"
_OPAQUE: Final = {
    "SequenceNumber": "SEQUENCE",
    "StartingSequenceNumber": "SEQUENCE",
    "EndingSequenceNumber": "SEQUENCE",
    "ContinuationSequenceNumber": "SEQUENCE",
    "ShardIterator": "TOKEN",
    "NextShardIterator": "TOKEN",
    "NextToken": "TOKEN",
    "MillisBehindLatest": "MILLISECONDS",
}
"""Members whose values differ from call to call, by name: only that they are there is compared."""
_UNORDERED: Final = re.compile(r"(\d+ validation errors? detected: )(.*)", re.DOTALL)
_SEQUENCE: Final = re.compile(r"\d{50,}")
_EPOCH: Final = re.compile(r"\b[12]\d{9}(\.\d+)?\b")
"""Seconds since the epoch, from 2001 to 2065, as in the ARN of a consumer."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs. `call`: the label of the call. `member`: the path of the value in the response."""

    call: str
    member: str
    fake: str
    endpoint: str


def comparable(observation: Observation, names: Mapping[str, str]) -> Any:
    """Return a response without what is different on every endpoint.

    `names`: such texts, for example the account, and what to write for them.
    """
    return _comparable(observation, "", names)


def differences(fake: Mapping[str, Any], endpoint: Mapping[str, Any]) -> list[Difference]:
    """Compare comparable responses by their labels."""
    labels = [*fake, *(label for label in endpoint if label not in fake)]
    return [
        Difference(label, path or "(response)", str(ours), str(theirs))
        for label in labels
        for path, ours, theirs in _unequal(fake.get(label, MISSING), endpoint.get(label, MISSING), "")
    ]


def _comparable(value: Any, name: str, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _comparable(member, key, names) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_comparable(item, name, names) for item in value]
    if name in _OPAQUE:
        return _OPAQUE[name]
    if name.endswith("Timestamp"):
        return "TIME"
    return _text(value, names) if isinstance(value, str) else value


def _text(text: str, names: Mapping[str, str]) -> str:
    for found, replacement in names.items():  # not in a shard id: an account may be all zeros
        text = re.sub(rf"(?<![-\w]){re.escape(found)}(?!\w)", replacement, text)
    if listed := _UNORDERED.fullmatch(text):  # AWS does not order the violations of a request
        text = listed[1] + "; ".join(sorted(listed[2].split("; ")))
    return _EPOCH.sub("EPOCH", _SEQUENCE.sub("SEQUENCE", text))


def _unequal(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each unequal value, and both values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            yield from _unequal(ours.get(key, MISSING), theirs.get(key, MISSING), f"{path}.{key}" if path else key)
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"length of {path}", len(ours), len(theirs)
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _unequal(mine, other, f"{path}[{index}]")
    elif ours != theirs:
        yield path, ours, theirs
