"""Real object stores on loopback, each with one empty bucket: moto and versitygw for S3, and Azurite.

`make object-stores` downloads them. For Google Cloud Storage there is none: fake-gcs-server takes no object by the XML
API, which obstore uses since it has conditions on writes.
"""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from efo_service.object_store.url import Option, Scheme
from proofs.local_servers.processes import Server, directory
from proofs.local_servers.running import NotInstalledError
from proofs.paths import TOOLS
from proofs.ports import free_port

INSTALLED = TOOLS / "object-stores"
BUCKET = "efo-logs"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testkey",
    "AWS_SECRET_ACCESS_KEY": "testsecret",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}
"""The environment of a client, besides the options of the store. Its credentials are made up."""

_MOTO = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
app, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
def one_at_a_time(environ, start_response):
    with lock:
        return list(app(environ, start_response))
run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True)
"""
"""moto looks and writes in two steps: with several threads, two creates of one key may both succeed."""


@dataclass(frozen=True, slots=True)
class Running:
    """A store that runs. `url`: of its HTTP server. `options`: [relay] store_options that reach it."""

    scheme: Scheme
    url: str

    def options(self, url: str | None = None) -> Mapping[str, Option]:
        """Return the options. `url`: of a proxy before the server."""
        endpoint = url or self.url
        match self.scheme:
            case "s3":
                return {"endpoint": endpoint, "region": "us-east-1", "allow_http": True}
            case _:
                return {
                    "endpoint": f"{endpoint}/devstoreaccount1",
                    "account_name": "devstoreaccount1",
                    "allow_http": True,
                }


def _program(name: str, path: str) -> str:
    program = INSTALLED / path
    if not program.exists():
        raise NotInstalledError(f"{name} is not installed: run `make object-stores`")
    return str(program)


@contextmanager
def _serving(
    scheme: Scheme, command: Callable[[int, Path], list[str]], create_bucket: Callable[[str], None]
) -> Iterator[str]:
    with directory() as path:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        log = path.with_name(f"{path.name}.log")
        server = Server(command(port, path), log=log, probe=lambda: create_bucket(url))
        try:
            server.start()
            yield json.dumps({"scheme": scheme, "url": url})
        finally:
            server.stop(signal.SIGTERM, 5)
            log.unlink(missing_ok=True)


def running(text: str) -> Running:
    """Return a store from what the context managers yield."""
    return Running(**json.loads(text))


def serve_moto() -> AbstractContextManager[str]:
    """Run moto. Raises NotInstalledError."""
    return _serving("s3", lambda port, _path: [_program("moto", "moto/bin/python"), "-c", _MOTO, str(port)], _s3_bucket)


def serve_versitygw() -> AbstractContextManager[str]:
    """Run versitygw, an S3 server on a directory. Raises NotInstalledError."""

    def command(port: int, path: Path) -> list[str]:
        (path / "data").mkdir()
        keys = ["--access", ENVIRONMENT["AWS_ACCESS_KEY_ID"], "--secret", ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]]
        return [
            _program("versitygw", "bin/versitygw"),
            *keys,
            "--port",
            f"127.0.0.1:{port}",
            "posix",
            str(path / "data"),
        ]

    return _serving("s3", command, _s3_bucket)


def serve_azurite() -> AbstractContextManager[str]:
    """Run Azurite's blob service. Raises NotInstalledError."""

    def command(port: int, _path: Path) -> list[str]:
        node = shutil.which("node")
        if node is None:
            raise NotInstalledError("Azurite needs Node")
        program = _program("Azurite", "node_modules/azurite/dist/src/blob/main.js")
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
        return [
            node,
            program,
            *options,
            "--inMemoryPersistence",
            "--disableTelemetry",
            "--silent",
            "--skipApiVersionCheck",
        ]

    return _serving("az", command, _azure_container)


SERVERS = {"moto": serve_moto, "versitygw": serve_versitygw, "azurite": serve_azurite}


# --- the bucket: the stores' clients cannot create one ---------------------------------------------------


def _s3_bucket(url: str) -> None:
    import botocore.session  # noqa: PLC0415 - slow to import

    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=BUCKET)


def _azure_container(url: str) -> None:
    """Create the container: obstore signs nothing but requests for blobs, so this signs one of its own."""
    import base64  # noqa: PLC0415 - for this alone
    import hashlib  # noqa: PLC0415 - the same
    import hmac  # noqa: PLC0415 - the same
    from email.utils import formatdate  # noqa: PLC0415 - the same

    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    signed = [f"{name}:{headers[name]}" for name in sorted(headers)]
    resource = f"/devstoreaccount1/devstoreaccount1/{BUCKET}\nrestype:container"
    content_type = "application/octet-stream"
    text = "\n".join(["PUT", *[""] * 4, content_type, *[""] * 6, *signed, resource])
    signature = hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)
    headers["Content-Type"] = content_type
    headers["Authorization"] = f"SharedKey devstoreaccount1:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(  # noqa: S310 - a local URL
        f"{url}/devstoreaccount1/{BUCKET}?restype=container", b"", headers, method="PUT"
    )
    with urllib.request.urlopen(request, timeout=10):  # noqa: S310 - the same
        pass


AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key that Microsoft documents for its emulator."""
ENVIRONMENT |= {"AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY}
