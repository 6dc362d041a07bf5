"""amazon_kclpy: replaces itself by Java's MultiLangDaemon, which runs a `kclpy_processor.py` for each shard.

The arguments: the directory of the unpacked package and its jars, then the configuration's file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from meter import configuration

LOGGING = """\
<configuration>
  <appender name="stderr" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="ERROR"><appender-ref ref="stderr"/></root>
</configuration>
"""
PROCESSOR = Path(__file__).with_name("kclpy_processor.py")


def main() -> None:
    config = configuration()
    package = Path(sys.argv[1])
    directory = Path(config["directory"])
    output = os.dup(1)  # of the runner; the daemon's own stdout is its log
    os.set_inheritable(output, True)
    os.dup2(2, 1)
    values = {
        "executableName": f"{sys.executable} {PROCESSOR} /proc/{os.getpid()}/fd/{output} {sys.argv[-1]}",
        "streamName": config["stream"],
        "applicationName": config["application"],
        "workerId": config["worker"],
        "AwsCredentialsProvider": "DefaultCredentialsProvider",
        "processingLanguage": "python/3",
        "initialPositionInStream": "TRIM_HORIZON",
        "regionName": config["region"],
        "kinesisEndpoint": config["endpoint"],
        "dynamoDBEndpoint": config["dynamodb"],
        "metricsLevel": "NONE",
        "retrievalMode": "FANOUT",
        "fanoutConfig.consumerArn": config["consumer_arn"],
    }
    properties = directory / "kclpy.properties"
    properties.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    logging = directory / "logback.xml"
    logging.write_text(LOGGING)
    os.environ["PYTHONPATH"] = str(next(package.glob("amazon_kclpy-*/")))
    daemon = "software.amazon.kinesis.multilang.MultiLangDaemon"
    trust = (f"-Djavax.net.ssl.trustStore={config['trust_store']}", "-Djavax.net.ssl.trustStorePassword=not-secret")
    arguments = ("--properties-file", str(properties), "--log-configuration", str(logging))
    jars = f"{package}/jars/*"
    os.execvp("java", ("java", "-Xmx1g", *trust, "-cp", jars, daemon, *arguments))  # noqa: S606, S607 - a known program


if __name__ == "__main__":
    main()
