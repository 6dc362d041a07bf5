"""Readers that were made for another surface than the consumer's: refused at the call, with the right name."""

from __future__ import annotations

from typing import Final

from efo.checks import name_of, signature_of
from efo.errors import ConfigurationError

_RUN_ON: Final = {"efo": "trio", "efo.aio": "asyncio", "efo.sync": "no event loop"}
_OF_HANDLERS: Final = frozenset({"batch", "record", "records", "values", "event"})


def check_surface(reader: object, surface: str) -> None:
    """Refuse a Handler or ProcessorReader of another surface. `surface`: the consumer's. Raises ConfigurationError."""
    own = getattr(reader, "surface", surface)
    if own != surface and own in _RUN_ON:
        kind = next(k.__name__ for k in type(reader).__mro__ if k.__name__ in {"Handler", "ProcessorReader"})
        raise ConfigurationError(
            f"reader is an {own}.{kind}, whose functions run on {_RUN_ON[own]}, and this consumer runs them on "
            f"{_RUN_ON[surface]}: use {surface}.{kind}"
        )


def check_no_handler(reader: object, surface: str) -> None:
    """Refuse a handler of batches as a reader of shards, by the name of its parameter. Raises ConfigurationError."""
    if not callable(reader) or (signature := signature_of(reader)) is None:
        return
    if (first := next(iter(signature.parameters), "")) in _OF_HANDLERS:
        raise ConfigurationError(
            f"reader {name_of(reader)}({first}) looks like a handler, and run calls its reader with a shard: pass "
            f"{surface}.Handler({name_of(reader)})"
        )
