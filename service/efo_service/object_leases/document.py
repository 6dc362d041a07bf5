"""The leases of one application on one stream, as one JSON document. Pure.

    <root>/.efo-leases/application=<application>/stream=<stream>.json

A document for all leases, since requests are what an object store charges for: all renewals of a worker are one write,
and a lease scan is one read, whether there is one shard or a thousand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from efo.errors import ConfigurationError, LeaseError, LeaseStoreCorruptError, without_tracebacks
from efo.leases.lease_row import LeaseRow
from efo.model import Lease
from efo.third_party_errors import reason_of

FORMAT_VERSION: Final = 2
"""Since 2, a lease has fields that an efo which knows only 1 refuses. Both are read."""
KEPT_WRITES: Final = 64
"""How many writes a document names. A lost answer is recognised while its write is one of them."""

FOLDER: Final = ".efo-leases"
"""Where the documents are, below the root of the log. It is no valid name of a topic."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")

_REMEDY: Final = "restore an earlier version of it, or stop all workers and delete it (docs/leases.md, Beside the log)"


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document as it is stored. `leases`: `LeaseRow`s by the keys of the leases."""

    format: int
    application: str
    stream: str
    revision: int
    writes: tuple[str, ...]
    leases: dict[str, msgspec.Raw]


class _Format(msgspec.Struct):
    format: int


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Document).decode
_encode_row: Final = msgspec.json.Encoder().encode
_decode_row: Final = msgspec.json.Decoder(LeaseRow).decode


@dataclass(frozen=True, slots=True)
class LeaseDocument:
    """The content of a document.

    `revision`: how many writes made it. `writes`: the identities of the latest of them, so that no two contents are
    alike. `rows`: the JSON of each lease's `LeaseRow`, by the lease's key.
    """

    revision: int = 0
    writes: tuple[str, ...] = ()
    rows: Mapping[str, bytes] = field(default_factory=dict)

    def written(self, rows: Mapping[str, bytes], write: str) -> LeaseDocument:
        """Return the document with these rows. `write`: identifies the write."""
        return LeaseDocument(self.revision + 1, (*self.writes, write)[-KEPT_WRITES:], rows)

    def has_forgotten(self, base: LeaseDocument) -> bool:
        """Return whether this later document may not name each write since `base`: its effect is unknown then."""
        return not base.revision <= self.revision <= base.revision + KEPT_WRITES


def key_of(application: str, stream: str) -> str:
    """Return the key of a document. Raises ConfigurationError for a name that is none of a file."""
    for what, name in (("application", application), ("stream", stream)):
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"leases beside the log: {name[:140]!r} is no name of an {what}: use up to 128 letters, digits, '.',"
                " '_' and '-'"
            )
    return f"{FOLDER}/application={application}/stream={stream}.json"


def encode_document(document: LeaseDocument, application: str, stream: str) -> bytes:
    """Return the bytes of a document."""
    return _encode(
        _Document(
            format=FORMAT_VERSION,
            application=application,
            stream=stream,
            revision=document.revision,
            writes=document.writes,
            leases={key: msgspec.Raw(row) for key, row in document.rows.items()},
        )
    )


def decode_document(content: bytes, application: str, stream: str, name: str) -> LeaseDocument:
    """Return a document; its rows are not decoded. `name`: for messages. Raises LeaseStoreCorruptError."""
    try:
        version = msgspec.json.decode(content, type=_Format).format
        stored = _decode(content) if 1 <= version <= FORMAT_VERSION else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LeaseStoreCorruptError(f"lease store {name} is damaged ({reason_of(error)}): {_REMEDY}") from None
    if stored is None:
        raise LeaseStoreCorruptError(
            f"lease store {name} has format version {version}, this efo supports 1 to {FORMAT_VERSION}: use the efo"
            " release that wrote the leases, or a newer one"
        )
    if (stored.application, stored.stream) != (application, stream):
        raise LeaseStoreCorruptError(
            f"lease store {name} has the leases of the application {stored.application!r} on the stream"
            f" {stored.stream!r}, not of {application!r} on {stream!r}: {_REMEDY}"
        )
    rows = {key: bytes(row) for key, row in stored.leases.items()}
    return LeaseDocument(stored.revision, stored.writes, rows)


def encode_lease(lease: Lease) -> bytes:
    """Return the row of a lease."""
    return _encode_row(LeaseRow.of(lease))


def decode_lease(key: str, row: bytes, name: str) -> Lease:
    """Return the lease of a row. `name`: of the document, for messages. Raises LeaseStoreCorruptError."""
    try:
        lease = _decode_row(row).lease()
    except (ConfigurationError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LeaseStoreCorruptError(
            f"lease store {name}, lease {key!r} is damaged ({reason_of(error)}): {_REMEDY}"
        ) from None
    if lease.key != key:
        raise LeaseStoreCorruptError(
            f"lease store {name}, lease {key!r} is damaged (lease_key {lease.key!r}): {_REMEDY}"
        )
    return lease


# --- what the writes that wait together make of it -------------------------------------------------------------

Edit = Callable[[Lease | None], Lease | None]
"""Returns the lease after a write for the one before, None if there is none. Raises LeaseLostError. Pure: it is called
again if another worker was faster."""

Result = Lease | LeaseError | None
"""The lease after an edit, None if there is none, or the error that it met alone."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The effect of edits on a document.

    `document`: the one after them, None if they change nothing. `results`: of the edits, in order.
    `depends_on_currency`: an edit failed or changed nothing, which may only be so because the document is an old copy.
    """

    document: LeaseDocument | None
    results: Sequence[Result]
    depends_on_currency: bool


def plan(document: LeaseDocument, edits: Sequence[tuple[str, Edit]], write: str, name: str) -> Plan:
    """Return the effect of edits, each with the key of its lease. One that fails has no effect on the others.

    `write`: identifies the write. `name`: of the document, for messages.
    """
    rows = dict(document.rows)
    results: list[Result] = []
    is_changed = depends_on_currency = False
    for key, edit in edits:
        row = rows.get(key)
        try:
            before = None if row is None else decode_lease(key, row, name)
            after = edit(before)
        except LeaseError as error:
            results.append(without_tracebacks(error))
            depends_on_currency = True
            continue
        results.append(after)
        if after == before:
            depends_on_currency = True
            continue
        is_changed = True
        if after is None:
            del rows[key]
        else:
            rows[key] = encode_lease(after)
    return Plan(document.written(rows, write) if is_changed else None, results, depends_on_currency)
