"""A standalone Spark cluster of processes on this machine: a master, workers, and the jobs that are submitted to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from efo_service.demo.demo import ChildFailedError, DemoProcess
from proofs.e2e.cluster.environments import BARE, NAME
from proofs.ports import free_port

START_SECONDS: Final = 300.0
"""How long a part of the cluster may take to start. Usually some seconds; a busy machine needs more."""
JOB_SECONDS: Final = 900.0
MEMORY: Final = "1g"
PYTHON: Final = f"./{NAME}/bin/python"
"""The Python of the packed environment. The path is right in the driver's directory and in that of each executor."""
_C1: Final = "-XX:TieredStopAtLevel=1"
"""The runs are short: Java's second compiler would only cost time."""


def spark_home() -> Path:
    """Return the directory of PySpark, which has Spark's scripts and jars."""
    import pyspark  # noqa: PLC0415 - slow to import

    return Path(pyspark.__file__).parent


class Program(DemoProcess):
    """Any command as a child: a part of the cluster, or a job."""

    def __init__(
        self, name: str, command: Sequence[str | Path], directory: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        super().__init__(name, [], directory, {**_environment(), **environment})
        self.log = log / f"{name}.log"
        self._arguments = [str(part) for part in command]

    async def wait_for(self, text: str, seconds: float = START_SECONDS) -> None:
        """Wait until the program has written a text since its last start. Raises ChildFailedError."""
        with trio.move_on_after(seconds):
            while text not in self.text():
                self.check()
                await trio.sleep(0.2)
            return
        raise ChildFailedError(f"{self.name} has not written {text!r} in {seconds:g} s:\n{self._tail()}")

    async def start(self) -> None:
        """Start the program, with an empty log."""
        self.log.unlink(missing_ok=True)
        await super().start()

    async def end_of(self, seconds: float = JOB_SECONDS) -> int:
        """Wait until the program has ended, and return its exit code. Raises ChildFailedError."""
        with trio.move_on_after(seconds):
            return await self._running.wait()
        await self.kill()
        raise ChildFailedError(f"{self.name} has not ended in {seconds:g} s:\n{self._tail()}")

    @property
    def is_running(self) -> bool:
        """Whether the program was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    async def wait_for_port(self, port: int, seconds: float = START_SECONDS) -> None:
        """Wait until the program accepts connections. Raises ChildFailedError."""
        with trio.move_on_after(seconds):
            while True:
                self.check()
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                except OSError:
                    await trio.sleep(0.5)
                else:
                    await stream.aclose()
                    return
        raise ChildFailedError(f"{self.name} does not listen after {seconds:g} s:\n{self._tail()}")

    def text(self) -> str:
        """Return what the program has written."""
        return self.log.read_text(errors="replace")


def _environment() -> dict[str, str]:
    """Return what all programs have in common. Nothing of this process's Python may lead to efo."""
    return {
        "PYTHONPATH": "",
        "VIRTUAL_ENV": "",
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(BARE),
        "PYSPARK_DRIVER_PYTHON": str(BARE),
        "SPARK_DAEMON_JAVA_OPTS": _C1,
    }


class Cluster:
    """A master and workers, each with a directory of its own, whose default Python is bare.

    `environment`: of executors, which Spark sends them with each job.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], workers: int = 2) -> None:
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._logs = directory / "logs"
        self._logs.mkdir()
        self._directory = directory
        self.connect_port = free_port()
        self._properties = directory / "spark.properties"
        self._properties.touch(mode=0o600)
        self._properties.write_text(self._settings(environment))
        self.master = self._daemon("master", "master.Master", "--port", self.url.rpartition(":")[2])
        self.workers = [
            self._daemon(f"worker-{n}", "worker.Worker", "--cores", "1", "--memory", MEMORY, self.url)
            for n in range(1, workers + 1)
        ]

    async def start(self) -> None:
        """Start the master and the workers, and wait until they know each other. Raises ChildFailedError."""
        await self.master.start()
        await self.master.wait_for("I have been elected leader")
        for worker in self.workers:
            await worker.start()
        for worker in self.workers:
            await worker.wait_for("Successfully registered with master")

    def submit(
        self,
        name: str,
        job: Sequence[str | Path],
        *,
        directory: Path,
        python: str = PYTHON,
        archive: Path | None = None,
        environment: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> Program:
        """Return a job for spark-submit, which is not started yet.

        `python`: of the driver and the executors. `archive`: for the executors. `environment`: of the driver.
        """
        command: list[str | Path] = [spark_home() / "bin" / "spark-submit", "--properties-file", self._properties]
        if archive is not None:
            command += ["--archives", f"{archive}#{NAME}"]
        for key, value in (settings or {}).items():
            command += ["--conf", f"{key}={value}"]
        pythons = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        return Program(name, [*command, *job], directory, {**environment, **pythons}, self._logs)

    def connect_server(self, *, directory: Path, python: Path, environment: Mapping[str, str]) -> Program:
        """Return the server of Spark Connect, which is not started yet.

        `python`: absolute, since Spark Connect starts the Pythons of a batch and of a stream in different directories.
        """
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        # Not spark.driver.memory: spark-submit takes the server for a daemon.
        environment = {**environment, "SPARK_DAEMON_MEMORY": "1g"}
        return self.submit("connect", server, directory=directory, python=str(python), environment=environment)

    def client(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> Program:
        """Return a client of Spark Connect, which is not started yet. It has no Spark of its own."""
        return Program(name, command, self._directory, {**environment, "SPARK_HOME": ""}, self._logs)

    def _daemon(self, name: str, main: str, *arguments: str) -> Program:
        command: list[str | Path] = [
            spark_home() / "bin" / "spark-class",
            f"org.apache.spark.deploy.{main}",
            *("--host", "127.0.0.1", "--webui-port", "0"),
        ]
        if name != "master":
            command += ["--work-dir", self._directory / name]
        directory = self._directory / name
        directory.mkdir()
        return Program(name, [*command, *arguments], directory, {"SPARK_DAEMON_MEMORY": "256m"}, self._logs)

    def _settings(self, environment: Mapping[str, str]) -> str:
        settings = {
            "spark.master": self.url,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": _C1,
            "spark.executor.extraJavaOptions": _C1,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.log.level": "WARN",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.connect_port),
            **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
        }
        return "".join(f"{name} {value}\n" for name, value in settings.items())
