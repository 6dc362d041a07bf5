"""How Spark's own Kafka source reads what the relay put there: its options, from the relay's options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from efo.errors import ConfigurationError
from efo_service.relay.kafka.options import KafkaOptions

_SHARD: Final = r"shardId-\d+"
"""What stands for {shard} in the topics' names, so that those of other streams and of dead letters do not fit."""
_LOGIN: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def reader_options(options: KafkaOptions, topic: str) -> dict[str, str]:
    """Return the options that say where and what to read: only what is committed. Raises ConfigurationError.

    `topic`: may have {shard} in it; then all topics are read whose names fit.
    """
    found = {
        "kafka.bootstrap.servers": options.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        **_what(topic),
        "kafka.security.protocol": options.security_protocol.upper(),
        # A broker that is restarted is waited for, instead of failing the query.
        "kafka.default.api.timeout.ms": "120000",
    }
    if options.ca_file is not None:
        found |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(options.ca_file)}
    if options.certificate_file is not None:
        raise ConfigurationError(
            "[pipeline] source = kafka: mutual TLS is Spark's to be told: use format('kafka') in a job of your own,"
            " with Kafka's ssl.keystore options"
        )
    if options.sasl_mechanism is not None:
        found |= _sasl(options)
    return found


def _what(topic: str) -> dict[str, str]:
    if "{shard}" not in topic:
        return {"subscribe": topic}
    return {"subscribePattern": _SHARD.join(re.escape(part) for part in topic.split("{shard}"))}


def _sasl(options: KafkaOptions) -> dict[str, str]:
    module = _LOGIN.get(options.sasl_mechanism or "")
    if module is None or options.sasl_password is None:
        raise ConfigurationError(
            f"[pipeline] source = kafka: {options.sasl_mechanism} needs a login module of its own on Spark's class"
            " path: use format('kafka') in a job of your own, with Kafka's sasl options"
        )
    user, password = _quoted(options.sasl_username or ""), _quoted(options.sasl_password)
    return {
        "kafka.sasl.mechanism": str(options.sasl_mechanism),
        "kafka.sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jars(directory: Path | None) -> tuple[Path, ...]:
    """Return the jars of a directory. Raises ConfigurationError if it has none."""
    if directory is None:
        return ()
    found = tuple(sorted(directory.glob("*.jar")))
    if not found:
        raise ConfigurationError(f"[pipeline] jars: there is no jar in {directory}")
    return found
