from __future__ import annotations

import json
import signal

import pytest

from efo_service.exit_codes import Exit
from efo_service.spark_job import main


@pytest.fixture(autouse=True)
def signals():
    """Restore the signal handlers: the job sets them for the rest of its process, which here is the test run."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_missing_config_file_exits_with_a_configuration_error(tmp_path, capsys) -> None:
    assert main(["--config", str(tmp_path / "nothing.toml")]) == Exit.CONFIGURATION
    assert "nothing.toml" in capsys.readouterr().err


def test_help_shows_an_example(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "example: spark-submit" in capsys.readouterr().out


@pytest.mark.spark
def test_the_job_runs_in_the_existing_session_and_leaves_it_open(spark, log, tmp_path, capsys) -> None:
    log.grow(0, 10)
    config = tmp_path / "efo.toml"
    config.write_text(
        f'[kinesis]\nstream = "{log.topic}"\n[relay]\ndirectory = "{log.root}"\n'
        f'[pipeline]\noutput = "{(tmp_path / "out").as_uri()}"\ncheckpoint = "{tmp_path / "state"}"\n'
    )
    assert main(["--config", str(config), "--available-now"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["result"]["rows"]["records"] == 10
    assert spark.read.parquet(str(tmp_path / "out" / "records")).count() == 10
