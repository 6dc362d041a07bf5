"""Files as people's editors and mounts leave them: byte order marks, other encodings, certificates that are none."""

from __future__ import annotations

import json
import os
import time
from functools import partial

import trio

import efo
from efo.testing import FakeKinesis
from proofs.edges.egress import (
    CONFIGURATION,
    USAGE,
    efo_running,
    first_error,
    read,
    reported,
    run_efo,
    set_environment,
    write,
)
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("files")

CONFIG = '[kinesis]\nstream = "orders"\nregion = "eu-west-1"\n'
BOM = b"\xef\xbb\xbf"


async def check_config(content: bytes, **environment: str) -> tuple[int, str]:
    """Return the exit status and the output of `efo check-config` for a file."""
    write("efo.toml", content)
    return await run_efo("check-config", "--config", "efo.toml", environment=environment)


@cases.case("accepted, with line breaks of Windows too")
async def a_configuration_with_a_byte_order_mark() -> Outcome:
    found = [await check_config(BOM + text.encode()) for text in (CONFIG, CONFIG.replace("\n", "\r\n"))]
    return Outcome(
        f"exit {[status for status, _ in found]}", all(s == 0 and 'region = "eu-west-1"' in text for s, text in found)
    )


@cases.case("exit 78: the file, and what it is instead")
async def a_configuration_in_another_encoding() -> Outcome:
    text = f"{CONFIG}# café\n"
    reported_of = []
    for encoding, words in (("utf-16", "it is UTF-16 text"), ("latin-1", "line 4: it is not UTF-8 text")):
        status, output = await check_config(text.encode(encoding))
        reported_of.append((status, reported(output, "efo.toml: cannot read the configuration", words)))
    return Outcome(f"{reported_of}", reported_of == [(CONFIGURATION, True)] * 2)


@cases.case("exit 78: the credentials of a proxy are for the environment; from there they are used and not shown")
async def the_credentials_of_a_proxy() -> Outcome:
    url = f"http://user:{CANARY}@proxy.example:3128"
    refused, text = await check_config(f'{CONFIG}proxy_url = "{url}"\n'.encode())
    is_reported = reported(text, "[kinesis] proxy_url has a user and a password", "EFO_KINESIS__PROXY_URL")
    shown, output = await check_config(CONFIG.encode(), EFO_KINESIS__PROXY_URL=url)
    is_masked = "http://***@proxy.example:3128" in output
    return Outcome(
        f"exit {refused} and {shown}, reported: {is_reported}, masked: {is_masked}",
        (refused, shown, is_reported, is_masked) == (CONFIGURATION, 0, True, True),
    )


@cases.case("refused at the call, with the variable or setting and the path")
async def authorities_that_are_none() -> Outcome:
    set_environment()
    contents = {"empty": b"", "text": b"no certificate", "mark": BOM, "utf-16": "-----BEGIN".encode("utf-16")}
    for name, content in contents.items():
        write(f"{name}.pem", content)
    found = []
    for source in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "ca_file"):
        for path in [*(f"{name}.pem" for name in contents), "missing.pem", "."]:
            if source != "ca_file":
                os.environ[source] = path
            error = await first_error(partial(_opened, path if source == "ca_file" else None))
            os.environ.pop(source, None)
            found.append(isinstance(error, efo.errors.ConfigurationError) and f"{path} ({source})" in str(error))
    return Outcome(f"{sum(found)} of {len(found)} refused by name", all(found))


@cases.case("refused: an empty variable would be taken for no verification by some clients")
async def a_variable_of_authorities_that_is_empty() -> Outcome:
    set_environment(AWS_CA_BUNDLE="")
    error = await first_error(_opened)
    is_right = isinstance(error, efo.errors.ConfigurationError) and "AWS_CA_BUNDLE is empty" in str(error)
    return Outcome(str(error)[:80], is_right)


async def _opened(ca_file: str | None = None) -> None:
    async with efo.open_kinesis("orders", ca_file=ca_file):
        await trio.lowlevel.checkpoint()


@cases.case("the mark is no part of the first record; other encodings are refused, and nothing is put")
async def lines_that_an_editor_has_saved() -> Outcome:
    async with FakeKinesis(clock=time.time) as fake, fake.serve() as address:
        fake.create_stream("orders", shards=1)
        environment = {"EFO_KINESIS__ENDPOINT_URL": address.url, "EFO_KINESIS__CA_FILE": str(address.ca_file)}

        async def put(content: bytes, form: str) -> int:
            return (await run_efo("put", "orders", "--format", form, environment=environment, stdin=content))[0]

        line = b'{"key":"k","value":"b25l"}'
        statuses = [await put(BOM + b"one\r\n", "lines"), await put(BOM + line + b"\r\n", "json")]
        statuses += [await put(line.decode().encode("utf-16"), form) for form in ("lines", "json")]
        stored = [record.data for records in fake.records("orders").values() for record in records]
    return Outcome(f"exit {statuses}, stored {stored}", statuses == [0, 0, USAGE, USAGE] and stored == [b"one", b"one"])


@cases.case("imported as they were exported")
async def leases_that_an_editor_has_saved() -> Outcome:
    environment = {"EFO_KINESIS__STREAM": "orders", "EFO_LEASES__PATH": "leases.sqlite"}
    document = json.dumps({"version": 1, "application": "efo", "stream": "orders", "leases": []}, indent=2)
    write("leases.json", BOM + document.replace("\n", "\r\n").encode())
    imported, _ = await run_efo("leases", "import", "leases.json", "--yes", environment=environment)
    write("leases.json", document.encode("utf-16"))
    refused, text = await run_efo("leases", "import", "leases.json", "--yes", environment=environment)
    is_reported = reported(text, "leases.json", "it is UTF-16 text")
    is_right = (imported, refused, is_reported) == (0, CONFIGURATION, True)
    return Outcome(f"exit {imported} and {refused}, reported: {is_reported}", is_right)


@cases.case("all addresses of IPv6 and IPv4, said in the log; its own commands find it")
async def a_service_on_all_addresses() -> Outcome:
    async with FakeKinesis(clock=time.time) as fake, fake.serve() as address:
        fake.create_stream("orders", shards=1)
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        await listener.aclose()
        environment = {
            "EFO_KINESIS__STREAM": "orders",
            "EFO_KINESIS__ENDPOINT_URL": address.url,
            "EFO_KINESIS__CA_FILE": str(address.ca_file),
            "EFO_SERVICE__HOST": "::",
            "EFO_SERVICE__PORT": str(port),
        }
        asked = {"::": 1, "127.0.0.1": 1}
        async with efo_running("run", environment=environment):
            with trio.move_on_after(30):
                while any(asked.values()):
                    for host in asked:
                        variables = {**environment, "EFO_SERVICE__HOST": host}
                        asked[host], _ = await run_efo("healthcheck", environment=variables)
    is_said = reported(read("run.log"), f"http://[::]:{port}", f"http://0.0.0.0:{port}")
    return Outcome(f"healthcheck: {asked}, said: {is_said}", not any(asked.values()) and is_said)
