"""Runs a fake Kinesis under load: `python -m proofs.load --shards 4 --record-bytes 200`.

Prints one line of JSON when it is ready, with its URL, the file of its certificate authority and the fan-out
consumers. Serves until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import trio

from efo.exception_groups import collapse_groups
from efo.testing.errors import FakeError
from efo.testing.settings import FakeSettings
from proofs.load.fake import LoadKinesis
from proofs.load.settings import Load

_LAST_PORT: Final = 65535
_UNAVAILABLE: Final = 69
_USAGE: Final = 64


async def run(
    load: Load,
    announce: Callable[[dict[str, Any]], None],
    *,
    port: int = 0,
    tls: bool = True,
    consumers: Sequence[str] = (),
    settings: FakeSettings | None = None,
) -> None:
    """Serve a load on 127.0.0.1 until cancelled. Raises OSError: the port is in use.

    `consumers`: names of fan-out consumers to register with each stream; with the default settings they are ACTIVE at
    once. `announce` is called once, when the server is ready, with the members `url`, `ca_file` (None without TLS) and
    `streams`: for each stream its `shards` and the ARNs of its `consumers`.
    """
    settings = FakeSettings(consumer_creating=0.0) if settings is None else settings
    async with (
        LoadKinesis(load, settings=settings, clock=time.time) as fake,
        fake.serve(port=port, tls=tls) as address,
    ):
        streams = {
            name: {
                "shards": list(fake.open_shards(name)),
                "consumers": {consumer: fake.register(name, consumer).arn for consumer in consumers},
            }
            for name in load.shards
        }
        ca_file = None if address.ca_file is None else str(address.ca_file)
        announce({"url": address.url, "ca_file": ca_file, "streams": streams})
        await trio.sleep_forever()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    options = _parse(arguments)
    try:
        load = Load(
            shards={options.stream: options.shards},
            record_bytes=options.record_bytes,
            records_per_event=options.records_per_event,
            aggregated=options.aggregated,
            rate=options.rate,
            seed=options.seed,
        )
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return _USAGE
    try:
        trio.run(_until_signal, load, options)
    except FakeError as error:
        sys.stderr.write(f"{error.message}\n")
        return _USAGE
    except OSError as error:
        sys.stderr.write(f"port {options.port} of 127.0.0.1: {error.strerror}\n")
        return _UNAVAILABLE
    return 0


async def _until_signal(load: Load, options: argparse.Namespace) -> None:
    serve = partial(run, load, _print, port=options.port, tls=options.tls, consumers=options.consumer)
    with collapse_groups(), trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await anext(aiter(signals))
            nursery.cancel_scope.cancel()


def _print(served: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(served) + "\n")
    sys.stdout.flush()


class _Parser(argparse.ArgumentParser):
    """A parser with efo's exit code for usage errors."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(_USAGE, f"{self.prog}: {message}\n")


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{port} is not a port: expected 0 to {_LAST_PORT}")
    return port


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    default = Load()
    parser = _Parser(prog="python -m proofs.load", description="Serve a fake Kinesis under load.")
    add = parser.add_argument
    add("--port", type=_port, default=0, help="port on 127.0.0.1; 0: the system chooses one (default: 0)")
    add("--no-tls", dest="tls", action="store_false", help="no TLS; HTTP/2 with prior knowledge")
    add("--stream", default="load", help="name of the stream (default: load)")
    add("--shards", type=int, default=4, help="number of shards (default: 4)")
    add("--consumer", action="append", default=[], help="name of a fan-out consumer to register; can be repeated")
    add("--record-bytes", type=int, default=default.record_bytes, help="bytes of data per user record (default: 200)")
    add(
        "--records-per-event",
        type=int,
        default=default.records_per_event,
        help="Kinesis records per event (default: 500)",
    )
    add("--aggregated", type=int, help="user records per KPL aggregate (default: no aggregates)")
    add("--rate", type=float, help="user records per second and shard (default: as many as the consumer reads)")
    add("--seed", type=int, default=default.seed, help="seed for data and keys (default: 0)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
