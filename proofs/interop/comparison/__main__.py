"""Make the calls of docs/fake.md on a Kinesis endpoint and on the fake, and print what differs.

The endpoint may be AWS's, or that of any other server. The run creates two streams, efo-comparison-* with 3 and 5
shards, and one fan-out consumer; it puts some 20 records, splits, merges and scales, and deletes everything at its end,
also after Ctrl-C. It takes two minutes, and some ten on AWS. There it costs less than 1 US dollar: at most 20 shard
hours, one consumer-shard hour and a few puts. So --accept-cost is needed. AWS gets the credentials of this environment,
which need kinesis:*; any other server gets made-up ones.

stdout has a table of the differences and, as the last line, one JSON object. Exit status: 0 without differences, 1 with
differences or if a stream could not be deleted, 64 for a wrong command line, 69 if the endpoint does not answer, 130
after Ctrl-C.

example: python -m proofs.interop.comparison https://kinesis.eu-central-1.amazonaws.com --accept-cost
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from typing import Final

import botocore.exceptions
import trio

from efo.errors import EfoError
from efo.exception_groups import leaf_exceptions
from efo.testing.server.background import background
from proofs.interop.comparison.comparison import Difference
from proofs.interop.comparison.endpoints import endpoint_caller, fake_caller, is_aws
from proofs.interop.comparison.runner import Outcome, UnreachableError, compare

_INTERRUPTED: Final = 130
_COLUMNS: Final = (("call", 44), ("member", 36), ("fake", 44), ("endpoint", 44))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parse(arguments)
    outcome, status = None, _INTERRUPTED
    try:
        outcome = trio.run(_compare, options)
    except* (UnreachableError, EfoError, botocore.exceptions.BotoCoreError, OSError) as group:
        _progress(f"{options.endpoint} cannot be used: {next(leaf_exceptions(group))}")
        status = os.EX_UNAVAILABLE
    if outcome is None:
        return status
    _print_table(outcome.differences)
    summary = {
        "endpoint": options.endpoint,
        "calls": outcome.calls,
        "differences": len(outcome.differences),
        "different": list(dict.fromkeys(difference.call for difference in outcome.differences)),
        "left": outcome.left,
    }
    print(json.dumps(summary))
    return 1 if outcome.differences or outcome.left else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    summary, _, example = (__doc__ or "").rpartition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m proofs.interop.comparison",
        description=summary,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("endpoint", help="URL of the endpoint, http:// or https://")
    parser.add_argument("--region", help="for signatures; default: that of the environment on AWS, else us-east-1")
    parser.add_argument("--ca-file", help="certificate authority of the endpoint, in PEM format")
    parser.add_argument("--accept-cost", action="store_true", help="call AWS, although it costs up to 1 US dollar")
    options = parser.parse_args(arguments)
    if not options.endpoint.startswith(("http://", "https://")):
        parser.exit(os.EX_USAGE, f"{options.endpoint!r} is no URL: begin with https:// or http://\n")
    if is_aws(options.endpoint) and not options.accept_cost:
        parser.exit(os.EX_USAGE, "this costs up to 1 US dollar on AWS (see --help): add --accept-cost\n")
    return options


async def _compare(options: argparse.Namespace) -> Outcome | None:
    """Return the outcome; None if a signal ended the calls."""
    name = f"efo-comparison-{secrets.token_hex(4)}"
    _progress(f"the calls are made with the streams {name}*")
    scope = trio.CancelScope()
    async with (
        fake_caller() as fake,
        endpoint_caller(options.endpoint, region=options.region, ca_file=options.ca_file) as endpoint,
        background() as nursery,
    ):
        nursery.start_soon(_cancel_by_signal, scope)
        outcome = await compare(fake, endpoint, name, _progress, scope)
    return None if scope.cancelled_caught else outcome


async def _cancel_by_signal(scope: trio.CancelScope) -> None:
    """Cancel the calls on Ctrl-C and SIGTERM; the streams are deleted then."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            _progress("stopping: the streams are being deleted")
            scope.cancel()


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _print_table(found: Sequence[Difference]) -> None:
    if found:
        print("  ".join(f"{name:{width}}" for name, width in _COLUMNS).rstrip())
    for difference in found:
        texts = difference.call, difference.member, difference.fake, difference.endpoint
        cells = [_fitted(text, width) for text, (_, width) in zip(texts, _COLUMNS, strict=True)]
        print("  ".join(cells).rstrip())


def _fitted(text: str, width: int) -> str:
    """Return the text in one line of exactly this width."""
    line = " ".join(text.split())
    return f"{line:{width}}" if len(line) <= width else f"{line[: width - 3]}..."


if __name__ == "__main__":
    sys.exit(main())
