from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pytest
import trio

from efo.protocol.native import DECODER
from efo_service.cli import call
from efo_service.exit_codes import Exit
from efo_service.version import commit
from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.server import serve
from tests.loopback import refused_port
from tests.paths import ROOT


def efo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "efo_service.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


COMMANDS = ["run", "pipeline", "demo", "fake", "shards", "tail", "check-config", "doctor", "healthcheck", "completion"]
COMMANDS += ["top", "version", "migrate", "record", "put"]
GROUPS = {
    "log": ["inspect", "verify", "export"],
    "leases": ["list", "show", "release", "reset", "delete", "export", "import"],
    "consumers": ["list", "register", "deregister", "janitor"],
}
GROUPED = [f"{group} {command}" for group, commands in GROUPS.items() for command in commands]


def test_help_lists_every_command(capsys):
    assert call(["--help"]) == Exit.OK
    shown = capsys.readouterr().out
    assert [command for command in (*COMMANDS, *GROUPS) if f" {command} " not in shown] == []


@pytest.mark.parametrize("command", [*COMMANDS, *GROUPED])
def test_every_command_has_help_with_an_example(command, capsys):
    assert call([*command.split(), "--help"]) == Exit.OK
    assert f"Example: efo {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "--confg", "x"], Exit.USAGE, "--confg"),
        (["rnu"], Exit.USAGE, "rnu"),
        (["check-config", "--config", "no-such-file.toml"], Exit.CONFIGURATION, "no-such-file.toml"),
        (["run", "--config", "no-such-file.toml"], Exit.CONFIGURATION, "no-such-file.toml"),
        (["healthcheck"], Exit.CONFIGURATION, "EFO_KINESIS__STREAM"),
    ],
)
def test_an_error_is_reported_on_stderr_with_its_exit_code(arguments, code, message):
    done = efo(*arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_check_config_prints_the_resolved_settings(capsys, monkeypatch):
    monkeypatch.setenv("EFO_SERVICE__PORT", "9090")
    assert call(["check-config", "--config", str(ROOT / "config/efo.toml")]) == Exit.OK
    shown = capsys.readouterr().out
    assert "port = 9090" in shown
    assert 'stream = "orders"' in shown
    assert call(["check-config", "--config", str(ROOT / "config/efo.toml"), "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["service"]["port"] == 9090


def test_check_config_defaults_prints_efo_full_toml(capsys):
    assert call(["check-config", "--defaults"]) == Exit.OK
    assert capsys.readouterr().out == (ROOT / "config/efo.full.toml").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_knows_every_command(shell, capsys):
    assert call(["completion", shell]) == Exit.OK
    script = capsys.readouterr().out
    names = {name for command in (*COMMANDS, *GROUPED) for name in command.split()}
    assert [name for name in names if name not in script] == []
    assert "interval" in script  # an option of `efo tail`


def test_the_script_for_bash_completes_commands_and_options(capsys, tmp_path):
    assert call(["completion", "bash"]) == Exit.OK
    (tmp_path / "efo").write_text(capsys.readouterr().out)
    program = """
        source "$1/efo"
        complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _efo; echo "${COMPREPLY[*]}"; }
        complete_words efo ta; complete_words efo log ex; complete_words efo tail --int
    """
    done = subprocess.run(["/bin/bash", "-c", program, "-", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["tail", "export", "--interval"], done.stderr


def test_completion_for_another_shell_is_refused(capsys):
    assert call(["completion", "csh"]) == Exit.USAGE
    assert "bash" in capsys.readouterr().err


def test_efo_config_names_the_configuration_file(capsys, monkeypatch):
    monkeypatch.setenv("EFO_CONFIG", str(ROOT / "config/efo.toml"))
    assert call(["check-config"]) == Exit.OK
    assert 'stream = "orders"' in capsys.readouterr().out


def test_version_prints_json(capsys):
    assert call(["version", "--json"]) == Exit.OK
    shown = json.loads(capsys.readouterr().out)
    assert shown["efo"]
    assert shown["commit"] == commit()
    assert call(["--version"]) == Exit.OK
    used = f", {DECODER.detail}" if DECODER.step else ""
    assert capsys.readouterr().out == f"{shown['efo']} ({commit()}){used}\n"


@pytest.fixture
async def health(nursery, monkeypatch):
    """Serve the endpoints of a service that is not ready, and return its Health."""
    health = Health(clock=lambda: 0.0)
    url = await nursery.start(serve, create_app(health, None, dict), "127.0.0.1", 0)
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_SERVICE__PORT", url.rpartition(":")[2])
    return health


async def test_healthcheck_of_a_running_service_succeeds(health, capsys):
    assert await trio.to_thread.run_sync(call, ["healthcheck"]) == Exit.OK
    assert capsys.readouterr().out == "alive\n"


async def test_healthcheck_ready_fails_and_names_the_problems_of_a_service_that_is_not_ready(health, capsys):
    assert await trio.to_thread.run_sync(call, ["healthcheck", "--ready"]) == Exit.UNAVAILABLE
    shown = capsys.readouterr()
    assert shown.out == "not ready\n"
    assert "the leases have not been read yet" in shown.err


def test_healthcheck_without_a_service_fails(unused_port, capsys, monkeypatch):
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_SERVICE__PORT", str(unused_port))
    assert call(["healthcheck"]) == Exit.UNAVAILABLE
    assert f"no response from http://127.0.0.1:{unused_port}/livez" in capsys.readouterr().err


FOREIGN_RESPONSES = [
    b"<h1>It works!</h1>",
    b"\xff\xfe",
    b"[]",
    b"{}",
    b'{"status": "UP"}',
    b'{"status": "ready", "problems": 1}',
]


@pytest.mark.parametrize("body", FOREIGN_RESPONSES)
@pytest.mark.parametrize("options", [[], ["--json"]])
async def test_healthcheck_rejects_the_response_of_another_program(body, options, nursery, monkeypatch, capsys):
    async def serve_another_program(stream):
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    [listener] = await nursery.start(partial(trio.serve_tcp, serve_another_program, 0, host="127.0.0.1"))
    port = listener.socket.getsockname()[1]
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_SERVICE__PORT", str(port))
    assert await trio.to_thread.run_sync(call, ["healthcheck", *options]) == Exit.UNAVAILABLE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"the program at http://127.0.0.1:{port} is not efo" in shown.err


@pytest.mark.parametrize("missing", ["trustme", "cbor2"])
@pytest.mark.parametrize("command", ["fake", "demo"])
def test_a_missing_package_of_the_fake_is_named(command, missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    assert call([command]) == Exit.UNAVAILABLE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert missing in shown.err
    assert "pip install 'efo[cli]'" in shown.err


def test_a_missing_package_of_the_command_line_is_reported_with_the_install_command():
    program = "import sys; sys.modules['cyclopts'] = None; from efo_service.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == Exit.UNAVAILABLE
    assert "pip install 'efo[cli]', or 'efo[service]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def unused_port():
    with refused_port() as port:
        yield port


def test_files_without_the_metadata_of_an_installation_have_no_version() -> None:
    """As where only `service` is on PYTHONPATH: the fuzzer's environment, a worker of Spark."""
    hide = "def version(name): raise metadata.PackageNotFoundError(name)\nmetadata.version = version"
    code = f"from importlib import metadata\n{hide}\nfrom efo_service.version import VERSION; print(VERSION)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("unknown\n", "")
