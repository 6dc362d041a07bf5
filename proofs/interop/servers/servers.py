"""The servers: what each one needs on this machine, where it is fetched to, and how it is started."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proofs.paths import TOOLS

HERE: Final = Path(__file__).parent
LOOPBACK: Final = f"--require {HERE / 'loopback.cjs'}"
"""An option of node's that keeps a server from listening elsewhere than on the loopback interface."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is to run: a directory of its own, free ports, and a certificate that names 127.0.0.1.

    `certificate` and `key` are PEM files; `both` holds the two, and `json` too, as kinesis-mock reads them.
    """

    directory: Path
    ports: tuple[int, int]
    certificate: Path
    key: Path
    both: Path
    json: Path


@dataclass(frozen=True, slots=True)
class Command:
    """What starts a server, and what it finds in its environment beside PATH."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is not ours. It speaks HTTPS on the first port of its place.

    `name`: what the table calls it. `needs`: programs to be found on PATH. `made`: the files by which the Makefile
    knows that it was fetched; making them fetches it. `health`: the path that answers 200 once it is ready.
    """

    name: str
    version: str
    needs: tuple[str, ...]
    made: tuple[Path, ...]
    health: str
    command: Callable[[Place], Command]

    def missing(self) -> str | None:
        """Say what of its toolchain this machine lacks; None: nothing."""
        absent = [program for program in self.needs if shutil.which(program) is None]
        return f"not found: {', '.join(absent)}" if absent else None

    @property
    def is_installed(self) -> bool:
        """Whether it was fetched."""
        return all(path.exists() for path in self.made)


def _kinesis_mock(place: Place) -> Command:
    tls, plain = place.ports
    main = TOOLS / "foreign" / "kinesis-mock" / "node_modules" / "kinesis-local" / "main.js"
    return Command(
        ("node", str(main)),
        {
            "NODE_OPTIONS": LOOPBACK,
            "KINESIS_MOCK_TLS_PORT": str(tls),
            "KINESIS_MOCK_PLAIN_PORT": str(plain),
            "KINESIS_MOCK_CERT_PATH": str(place.json),
            "LOG_LEVEL": "ERROR",
        },
    )


def _ministack(place: Place) -> Command:
    return Command(
        (str(TOOLS / "ministack" / "bin" / "ministack"),),
        {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(place.ports[0]),
            "SERVICES": "kinesis",
            "USE_SSL": "1",
            "MINISTACK_SSL_CERT": str(place.certificate),
            "MINISTACK_SSL_KEY": str(place.key),
            "LOG_LEVEL": "WARNING",
        },
    )


def _localstack(place: Place) -> Command:
    # Its Kinesis is a kinesis-mock too, behind a SubscribeToShard of its own. It would fetch it by itself, unlocked.
    library = place.directory / "var" / "lib" / "localstack" / "lib" / "kinesis-local"
    library.mkdir(parents=True)
    (library / "0.4.13").symlink_to(TOOLS / "foreign" / "localstack-kinesis", target_is_directory=True)
    binaries = TOOLS / "foreign" / "localstack" / "bin"
    return Command(
        (str(binaries / "python"), "-m", "localstack.runtime.main"),
        {
            "NODE_OPTIONS": LOOPBACK,
            "FILESYSTEM_ROOT": str(place.directory),
            "LOCALSTACK_VOLUME_DIR": str(place.directory / "volume"),
            "OVERRIDE_IN_DOCKER": "0",
            "SERVICES": "kinesis",
            "EAGER_SERVICE_LOADING": "1",
            "GATEWAY_LISTEN": f"127.0.0.1:{place.ports[0]}",
            "GATEWAY_SERVER": "hypercorn",  # the other one listens on every interface
            "DNS_ADDRESS": "0",  # no name server, which would listen on every interface
            "CUSTOM_SSL_CERT_PATH": str(place.both),
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
        },
    )


SERVERS: Final = (
    Server(
        name="kinesis-mock",
        version="0.6.2",
        needs=("node", "npm"),
        made=(TOOLS / "foreign" / "kinesis-mock" / ".ready",),
        health="/healthcheck",
        command=_kinesis_mock,
    ),
    Server(
        name="ministack",
        version="1.5.33",
        needs=(),
        made=(TOOLS / "ministack" / ".ready",),
        health="/_ministack/health",
        command=_ministack,
    ),
    Server(
        name="localstack",
        version="4.9.2",
        needs=("node", "npm"),
        made=(TOOLS / "foreign" / "localstack" / ".ready", TOOLS / "foreign" / "localstack-kinesis" / ".ready"),
        health="/_localstack/health",
        command=_localstack,
    ),
)
