"""What the writes that wait together make of a document. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from efo.errors import LeaseError, without_tracebacks
from efo.model import Lease
from efo_service.object_leases.document import LeaseDocument, decode_lease, encode_lease

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
