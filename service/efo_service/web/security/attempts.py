"""Limits how often an address may try a wrong token. Pure."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

ALLOWED: Final = 10
"""Failed attempts of an address in a minute. A token of 16 characters cannot be guessed at this pace."""
_SECONDS: Final = 60.0
_MAX_ADDRESSES: Final = 1000


class FailedAttempts:
    """Counts the failed attempts of each address. It keeps a thousand addresses, and forgets the oldest."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def retry_after(self, address: str | None, now: float) -> float | None:
        """Return for how many seconds the address has to wait; None if it may try. `now`: monotonic seconds."""
        recent = [at for at in self._failures.get(network_of(address), ()) if at > now - _SECONDS]
        return None if len(recent) < ALLOWED else recent[-ALLOWED] + _SECONDS - now

    def failed(self, address: str | None, now: float) -> None:
        """Count a failed attempt."""
        key = network_of(address)
        recent = [at for at in self._failures.pop(key, ()) if at > now - _SECONDS]
        self._failures[key] = [*recent, now][-ALLOWED:]
        while len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)


def network_of(address: str | None) -> str:
    """Return who a client is: the address; of IPv6 the 64 bits of its network, since one client has all of that."""
    try:
        parsed = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    return str(parsed) if not isinstance(parsed, IPv6Address) else str(IPv6Address(int(parsed) >> 64 << 64))
