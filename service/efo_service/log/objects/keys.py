"""The keys of the log, below its prefix. Pure.

<topic>/catalog.json                               the stream, and the partition of each shard
<topic>/maintenance.json                           which process maintains the topic
<topic>/readers/<name>.json                        the offsets of a reader
<topic>/<partition>/head.json                      the segments, and the number of the first live commit
<topic>/<partition>/commits/<number>               a commit, later its tombstone: never deleted
<topic>/<partition>/segments/<base>-<end>-<token>  records of several commits
"""

from __future__ import annotations

from typing import Final

COMMITS: Final = "commits"
SEGMENTS: Final = "segments"
PROBES: Final = ".efo-probe"
"""Where the probe at the start writes. It is no valid name of a topic."""


def maintenance(topic: str) -> str:
    """Return the key of what says which process maintains a topic."""
    return f"{topic}/maintenance.json"


def partition(topic: str, number: int) -> str:
    """Return the prefix of a partition's keys, without a slash at its end."""
    return f"{topic}/{number}"


def head(topic: str, number: int) -> str:
    """Return the key of a partition's head."""
    return f"{topic}/{number}/head.json"


def commit(topic: str, number: int, commit_number: int) -> str:
    """Return the key of a commit. It depends on nothing but the partition and the number of the commit."""
    return f"{topic}/{number}/{COMMITS}/{commit_number:020}"


def segments(topic: str, number: int) -> str:
    """Return the prefix of a partition's segments."""
    return f"{topic}/{number}/{SEGMENTS}/"


def segment(topic: str, number: int, base: int, end: int, token: str) -> str:
    """Return the key of a segment. `token`: of its writer, so that no key is ever used twice."""
    return f"{segments(topic, number)}{base:020}-{end:020}-{token}"
