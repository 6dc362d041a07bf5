"""The servers: what each one needs on this machine, where it is installed, and how it is started."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proofs.paths import TOOLS

HERE: Final = Path(__file__).parent
LOOPBACK: Final = f"--require {HERE / 'loopback.cjs'}"
"""An option for Node that makes a server listen only on the loopback interface."""


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What a server is started with: an empty directory, free ports, and a certificate for 127.0.0.1.

    `certificate`, `key`: PEM files. `both`: one PEM file with both. `json`: both in kinesis-mock's format.
    """

    directory: Path
    ports: tuple[int, int]
    certificate: Path
    key: Path
    both: Path
    json: Path


@dataclass(frozen=True, slots=True)
class Command:
    """The command that starts a server. `environment`: added to the environment of every server."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Server:
    """A third-party server. It serves HTTPS on the first port of its launch settings.

    `name`: its name in the table. `needs`: programs that must be on PATH. `ready_files`: the Makefile's targets that
    install it. `health`: the path that returns 200 once the server is ready.
    """

    name: str
    version: str
    needs: tuple[str, ...]
    ready_files: tuple[Path, ...]
    health: str
    command: Callable[[LaunchSettings], Command]

    def missing(self) -> str | None:
        """Return which of the needed programs are missing, as a message, or None if all are installed."""
        absent = [program for program in self.needs if shutil.which(program) is None]
        return f"not found: {', '.join(absent)}" if absent else None

    @property
    def is_installed(self) -> bool:
        """Whether it is installed."""
        return all(path.exists() for path in self.ready_files)


def _kinesis_mock(settings: LaunchSettings) -> Command:
    tls, plain = settings.ports
    main = TOOLS / "foreign" / "kinesis-mock" / "node_modules" / "kinesis-local" / "main.js"
    return Command(
        ("node", str(main)),
        {
            "NODE_OPTIONS": LOOPBACK,
            "KINESIS_MOCK_TLS_PORT": str(tls),
            "KINESIS_MOCK_PLAIN_PORT": str(plain),
            "KINESIS_MOCK_CERT_PATH": str(settings.json),
            "LOG_LEVEL": "ERROR",
        },
    )


def _ministack(settings: LaunchSettings) -> Command:
    return Command(
        (str(TOOLS / "ministack" / "bin" / "ministack"),),
        {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(settings.ports[0]),
            "SERVICES": "kinesis",
            "USE_SSL": "1",
            "MINISTACK_SSL_CERT": str(settings.certificate),
            "MINISTACK_SSL_KEY": str(settings.key),
            "LOG_LEVEL": "WARNING",
        },
    )


def _localstack(settings: LaunchSettings) -> Command:
    # Its Kinesis is kinesis-mock with another SubscribeToShard. LocalStack would download it without a lock file.
    library = settings.directory / "var" / "lib" / "localstack" / "lib" / "kinesis-local"
    library.mkdir(parents=True)
    (library / "0.4.13").symlink_to(TOOLS / "foreign" / "localstack-kinesis", target_is_directory=True)
    binaries = TOOLS / "foreign" / "localstack" / "bin"
    return Command(
        (str(binaries / "python"), "-m", "localstack.runtime.main"),
        {
            "NODE_OPTIONS": LOOPBACK,
            "FILESYSTEM_ROOT": str(settings.directory),
            "LOCALSTACK_VOLUME_DIR": str(settings.directory / "volume"),
            "OVERRIDE_IN_DOCKER": "0",
            "SERVICES": "kinesis",
            "EAGER_SERVICE_LOADING": "1",
            "GATEWAY_LISTEN": f"127.0.0.1:{settings.ports[0]}",
            "GATEWAY_SERVER": "hypercorn",  # the default gateway listens on every interface
            "DNS_ADDRESS": "0",  # disables the DNS server, which listens on every interface
            "CUSTOM_SSL_CERT_PATH": str(settings.both),
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
        },
    )


SERVERS: Final = (
    Server(
        name="kinesis-mock",
        version="0.6.2",
        needs=("node", "npm"),
        ready_files=(TOOLS / "foreign" / "kinesis-mock" / ".ready",),
        health="/healthcheck",
        command=_kinesis_mock,
    ),
    Server(
        name="ministack",
        version="1.5.33",
        needs=(),
        ready_files=(TOOLS / "ministack" / ".ready",),
        health="/_ministack/health",
        command=_ministack,
    ),
    Server(
        name="localstack",
        version="4.9.2",
        needs=("node", "npm"),
        ready_files=(TOOLS / "foreign" / "localstack" / ".ready", TOOLS / "foreign" / "localstack-kinesis" / ".ready"),
        health="/_localstack/health",
        command=_localstack,
    ),
)
