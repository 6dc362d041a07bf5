"""Takes samples of a running service, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import NamedTuple

from efo_service.errors import UnavailableError
from efo_service.top.sample import Sample, parse_counters, parse_status
from efo_service.web.probe import ServiceAddress


class Samples(NamedTuple):
    """Two successive samples. `previous` is None for the first, and for the first after the service did not answer."""

    sample: Sample
    previous: Sample | None


def fetch(service: ServiceAddress, clock: Callable[[], float] = monotonic) -> Sample:
    """Ask the service. Blocks for a few seconds at most. Raises UnavailableError if it, or efo, does not answer."""
    try:
        status = parse_status(_get(service, "/status"))
        counters = parse_counters(_get(service, "/metrics"), has_streams=status.has_streams)
    except (ValueError, RecursionError) as error:
        raise UnavailableError(
            f"the program at {service.url} is not efo, or another version: check [service] host and port"
        ) from error
    at = clock()
    ready, _ = service.get("/readyz")
    return Sample(at=at, status=status, ready=ready == 200, counters=counters)  # noqa: PLR2004 - HTTP status


def _get(service: ServiceAddress, path: str) -> str:
    """Return the body. Raises UnavailableError without a response or the right token, ValueError for another error."""
    status, body = service.get(path)
    if (refusal := service.refusal(status)) is not None:
        raise UnavailableError(refusal)
    if status != 200:  # noqa: PLR2004 - HTTP status
        raise ValueError(f"HTTP status {status}")
    return body


def refreshes(
    ask: Callable[[], Sample], is_over: Callable[[], bool], *, keep_trying: bool
) -> Iterator[Samples | UnavailableError]:
    """Yield two successive samples again and again. `is_over` waits until the next, and returns whether to end.

    If the service does not answer, yield the error if `keep_trying`, else raise it.
    """
    previous: Sample | None = None
    while True:
        try:
            sample = ask()
        except UnavailableError as error:
            if not keep_trying:
                raise
            previous = None  # counters from before say nothing about now
            yield error
        else:
            yield Samples(sample, previous)
            previous = sample
        if is_over():
            return
