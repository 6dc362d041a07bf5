"""An order, and how it is a record's data."""

from __future__ import annotations

import msgspec


class Order(msgspec.Struct, frozen=True):
    """An order. `cents`: its price."""

    id: int
    customer: str
    cents: int


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Order).decode
