"""What a deserializer is, and the two simplest: the bytes as they are, and text."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from efo.checks import check_text
from efo.errors import ConfigurationError, DeserializationError, MissingExtraError
from efo.model import Record
from efo.third_party_errors import reason_of

T = TypeVar("T")

Deserializer = Callable[[Record], T]
"""Returns the value of a record's data. Raises DeserializationError if the data is wrong; a function of an application
may raise any exception. It must not block."""

_MAX_REASON: Final = 300
_SLOW_ENCODINGS: Final = frozenset({"punycode", "idna"})
_MAX_SLOW: Final = 4096
"""Bytes of data in these encodings of domain names: Python's decoders need four times as long for twice as many."""


def raw(record: Record) -> bytes:
    """Return the data as it is: the innermost layer where only outer layers are removed, as in `gzip(raw)`."""
    return record.data


def text(encoding: str = "utf-8") -> Deserializer[str]:
    """Return a deserializer of text. Raises ConfigurationError for an unknown encoding."""
    check_text("encoding", encoding, "the name of an encoding, such as 'utf-8'")
    try:
        b" ".decode(encoding)
    except LookupError as error:
        raise ConfigurationError(
            f"encoding={encoding!r}: {reason_of(error)}: expected one that Python knows, such as 'utf-8'"
        ) from None
    except UnicodeError:
        pass  # an encoding with more bytes for each character
    is_slow = codecs.lookup(encoding).name in _SLOW_ENCODINGS

    def deserialize(record: Record) -> str:
        if is_slow and len(record.data) > _MAX_SLOW:
            raise refused(record, f"{encoding} of more than {_MAX_SLOW:,} bytes")
        try:
            return record.data.decode(encoding)
        except UnicodeDecodeError as error:
            raise refused(record, f"not {encoding}: {error.reason} (byte {error.start})") from None
        except UnicodeError:
            raise refused(record, f"not {encoding}") from None

    return deserialize


def with_data(record: Record, data: bytes) -> Record:
    """Return a record with other data, for the next layer."""
    return replace(record, data=data)


def refused(record: Record, reason: str) -> DeserializationError:
    """Return the error for a record whose data is wrong. `reason`: why; it must not contain data."""
    return DeserializationError(
        reason[:_MAX_REASON],
        sequence_number=record.sequence_number,
        sub_sequence_number=record.sub_sequence_number,
    )


def missing_extra(name: str, package: str, extra: str) -> MissingExtraError:
    """Return the error for a deserializer whose library is not installed."""
    return MissingExtraError(f"efo.deserializers.{name} needs {package}: pip install 'efo[{extra}]'")
