"""Each property of KCL 1, 2 and 3's MultiLangDaemon, and what it is for efo: the table of docs/kcl.md. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

Effect = Literal["taken", "mapped", "no effect", "refused"]
"""taken: it means the same. mapped: nearly, see the note. no effect: efo needs none. refused: it cannot hold."""


@dataclass(frozen=True, slots=True)
class Option:
    """A property. `setting`: the setting of efo that it becomes, "section.key"; "" if it is none.

    `convert`: makes the setting's value of the text, and raises ValueError, with what is expected, for a wrong one.
    """

    name: str
    effect: Effect
    note: str = ""
    setting: str = ""
    convert: Callable[[str], Any] = str

    @property
    def row(self) -> str:
        """The row of the table."""
        section, _, key = self.setting.rpartition(".")
        setting = f"`[{section}] {key}`" if key else ""
        return f"| `{self.name}` | {self.effect} | {setting} | {self.note} |"


def _seconds(text: str) -> float:
    """Return milliseconds as seconds."""
    return _whole(text) / 1000


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None


def _flag(text: str) -> bool:
    return text.lower() in {"true", "yes", "y", "on", "1"}  # as the library that KCL uses


def _poll_seconds(text: str) -> float:
    return min(max(_seconds(text), 0.2), 5.0)


def _choice(*choices: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"expected {', '.join(choice.upper() for choice in choices)}")
        return text.lower()

    return convert


def _epoch(text: str) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415 - only if it is set

    return datetime.fromtimestamp(_whole(text), UTC).isoformat()


def _worker_dimension(text: str) -> bool:
    return bool({"workeridentifier", "all"} & {part.strip().lower() for part in text.split(",")})


def _none(effect: Effect, note: str, names: str) -> Iterator[Option]:
    return (Option(name, effect, note) for name in names.split())


def _options() -> Iterable[Option]:
    yield Option("executableName", "taken", "Split at blanks, found by `PATH`; no shell.")
    yield Option("streamName", "taken", "", "kinesis.stream")
    yield Option("streamArn", "taken", "Goes before `streamName`.", "kinesis.stream")
    yield Option("applicationName", "taken", "Also the lease table, the fan-out consumer and the namespace of metrics.",
                 "consumer.application")  # fmt: skip
    yield Option("tableName", "taken", "", "leases.dynamodb.table")
    yield Option("workerId", "taken", "Default: unique on the host, and the same after a restart; KCL's is random.",
                 "leases.worker_id")  # fmt: skip
    yield Option("workerIdentifier", "taken", "As `workerId`.", "leases.worker_id")
    yield Option("regionName", "taken", "Default: that of the ARN, then of the AWS chain.", "kinesis.region")
    yield Option("kinesisEndpoint", "taken", "", "kinesis.endpoint_url")
    yield Option("kinesisClient.endpointOverride", "taken", "", "kinesis.endpoint_url")
    yield Option("kinesisClient.region", "taken", "", "kinesis.region")
    yield Option("dynamoDBEndpoint", "taken", "", "leases.dynamodb.endpoint_url")
    yield Option("dynamoDbClient.endpointOverride", "taken", "", "leases.dynamodb.endpoint_url")
    yield Option("dynamoDbClient.region", "taken", "", "leases.dynamodb.region")
    yield Option("dynamoDBRegionName", "taken", "", "leases.dynamodb.region")
    yield Option("cloudWatchClient.endpointOverride", "taken", "", "cloudwatch.endpoint_url")
    yield Option("cloudWatchClient.region", "taken", "", "cloudwatch.region")
    yield Option("cloudWatchRegionName", "taken", "", "cloudwatch.region")
    yield Option("AwsCredentialsProvider", "mapped", "The forms of credentials are below.", "kinesis.profile")
    yield Option("AwsCredentialsProviderDynamoDB", "mapped", "The same; no role.",
                 "leases.dynamodb.profile")  # fmt: skip
    yield Option("AwsCredentialsProviderCloudWatch", "mapped", "The same; no role.",
                 "cloudwatch.profile")  # fmt: skip
    yield Option("processingLanguage", "no effect", "KCL adds it to the user agent.")
    yield Option("initialPositionInStream", "taken", "Default: LATEST, as in KCL.", "consumer.initial_position",
                 _choice("latest", "trim_horizon"))  # fmt: skip
    yield Option("initialPositionInStreamExtended", "taken", "Seconds since the epoch.", "consumer.initial_position",
                 _epoch)  # fmt: skip
    yield Option("timestampAtInitialPositionInStream", "taken", "KCL 1's name of `initialPositionInStreamExtended`.",
                 "consumer.initial_position", _epoch)  # fmt: skip
    yield from _retrieval()
    yield from _leases()
    yield from _children()
    yield from _metrics()
    yield from _without_effect()


def _retrieval() -> Iterable[Option]:
    yield Option("retrievalMode", "taken", "FANOUT, POLLING, DEFAULT; and efo's AUTO. Default: FANOUT, but POLLING if a"
                 " property of polling is set, as in KCL.", "consumer.read_mode",
                 _choice("default", "fanout", "polling", "auto"))  # fmt: skip
    yield Option("fanoutConfig.consumerArn", "taken", "", "consumer.consumer_arn")
    yield Option("fanoutConfig.consumerName", "taken", "", "consumer.consumer_name")
    yield Option("maxRecords", "mapped", "The most records of one message to a child, however they are read.", "",
                 _whole)  # fmt: skip
    yield Option("pollingConfig.maxRecords", "mapped", "As `maxRecords`.", "", _whole)
    yield Option("idleTimeBetweenReadsInMillis", "mapped", "From 200 ms to 5 s. A shard that is behind is read without"
                 " a pause.", "consumer.poll_seconds", _poll_seconds)  # fmt: skip
    yield Option("pollingConfig.idleTimeBetweenReadsInMillis", "mapped", "As `idleTimeBetweenReadsInMillis`.",
                 "consumer.poll_seconds", _poll_seconds)  # fmt: skip
    yield Option("callProcessRecordsEvenForEmptyRecordList", "taken", "An idle shard gets an empty message each"
                 " `idleTimeBetweenReadsInMillis`.", "", _flag)  # fmt: skip
    polling = "efo reads on without a pool of threads, and tries again by itself."
    yield from _none("no effect", polling,
                     "retryGetRecordsInSeconds maxGetRecordsThreadPool dataFetchingStrategy"
                     " maxPendingProcessRecordsInput maxCacheByteSize maxRecordsCount"
                     " idleMillisBetweenCalls")  # fmt: skip
    yield from _none("no effect", "A shard that is current is polled each `idleTimeBetweenReadsInMillis`.",
                     "millisBehindLatestThresholdForReducedTps")  # fmt: skip
    yield from _none("no effect", "efo tries again with a growing pause.",
                     "fanoutConfig.maxDescribeStreamSummaryRetries"
                     " fanoutConfig.maxDescribeStreamConsumerRetries fanoutConfig.registerStreamConsumerRetries"
                     " fanoutConfig.retryBackoffMillis")  # fmt: skip


def _leases() -> Iterable[Option]:
    yield Option("failoverTimeMillis", "taken", "", "leases.failover_seconds", _seconds)
    yield Option("shardSyncIntervalMillis", "taken", "", "consumer.shard_sync_seconds", _seconds)
    yield Option("cleanupLeasesUponShardCompletion", "taken", "Default: true.", "leases.lease_cleanup", _flag)
    yield Option("maxLeasesForWorker", "taken", "", "leases.max_leases", _whole)
    yield Option("maxActiveThreads", "mapped", "The most children, and so leases, of this worker. Of KCL's threads,"
                 " a child needs two or more, and with too few it stops.", "leases.max_leases", _whole)  # fmt: skip
    yield Option("isGracefulLeaseHandoffEnabled", "taken", "", "leases.graceful_handoff", _flag)
    yield Option("gracefulLeaseHandoffTimeoutMillis", "taken", "", "leases.handoff_seconds", _seconds)
    yield Option("initialLeaseTableReadCapacity", "taken", "Of a table that efo creates.",
                 "leases.dynamodb.read_capacity", _whole)  # fmt: skip
    yield Option("initialLeaseTableWriteCapacity", "taken", "Of a table that efo creates.",
                 "leases.dynamodb.write_capacity", _whole)  # fmt: skip
    yield Option("leaseTableDeletionProtectionEnabled", "taken", "", "leases.dynamodb.deletion_protection", _flag)
    yield Option("leaseTablePitrEnabled", "taken", "", "leases.dynamodb.point_in_time_recovery", _flag)
    yield Option("billingMode", "no effect", "A table of efo's is billed on demand, unless its capacity is set.")
    yield from _none("no effect", "Leases are moved by requests to their holders, many at once.",
                     "maxLeasesToStealAtOneTime enablePriorityLeaseAssignment")  # fmt: skip
    yield from _none("no effect", "A worker of efo takes its fair share of the leases by itself: no leader assigns, and"
                     " one of KCL 3 leaves it out of the assignment by CPU.",
                     "leaseAssignmentIntervalMillis disableWorkerMetrics inMemoryWorkerMetricsCaptureFrequencyMillis"
                     " workerMetricsReporterFreqInMillis noOfPersistedMetricsPerWorkerMetrics dampeningPercentage"
                     " reBalanceThresholdPercentage allowThroughputOvershoot varianceBalancingFrequency"
                     " workerMetricsEMAAlpha staleWorkerMetricsEntryCleanupDuration")  # fmt: skip
    yield Option("maxThroughputPerHostKBps", "refused", "efo does not assign leases by throughput limits: set"
                 " `maxLeasesForWorker`.")  # fmt: skip
    yield Option("workerMetricsTableName", "taken", "Where a worker of efo says to KCL 3 that it runs.",
                 "leases.dynamodb.worker_metrics_table")  # fmt: skip
    yield from _none("no effect", "efo makes no such table.",
                     "workerMetricsBillingMode workerMetricsReadCapacity"
                     " workerMetricsWriteCapacity workerMetricsPointInTimeRecoveryEnabled"
                     " workerMetricsDeletionProtectionEnabled workerMetricsTags coordinatorStateTableName"
                     " coordinatorStateBillingMode coordinatorStateReadCapacity coordinatorStateWriteCapacity"
                     " coordinatorStatePointInTimeRecoveryEnabled coordinatorStateDeletionProtectionEnabled"
                     " coordinatorStateTags")  # fmt: skip
    yield from _none("no effect", "efo works in each phase of KCL's migrations. That to a single table goes on beside"
                     " it; for that from KCL 2, see docs/leases.md.",
                     "clientVersionConfig migrateAllEntitiesToLeaseTable")  # fmt: skip


def _children() -> Iterable[Option]:
    yield Option("timeoutInSeconds", "taken", "A child that does not answer in time has failed. Default: no limit.", "",
                 _whole)  # fmt: skip
    yield Option("shutdownGraceMillis", "taken", "How long a drain may take. Default: 25 s; KCL's is not to wait.",
                 "service.drain_seconds", _seconds)  # fmt: skip
    yield Option("validateSequenceNumberBeforeCheckpointing", "no effect", "A sequence number must be one from the last"
                 " checkpoint to the last record, always. It costs no call of Kinesis.")  # fmt: skip
    yield Option("logWarningForTaskAfterMillis", "no effect", "`/status` and the metrics show what a child holds up.")


def _metrics() -> Iterable[Option]:
    yield Option("metricsLevel", "taken", "Default: DETAILED, as in KCL.", "cloudwatch.level",
                 _choice("none", "summary", "detailed"))  # fmt: skip
    yield Option("metricsEnabledDimensions", "mapped", "Only whether it has WorkerIdentifier.",
                 "cloudwatch.worker_dimension", _worker_dimension)  # fmt: skip
    yield from _none("no effect", "Metrics are added up, and sent once a minute.",
                     "metricsBufferTimeMillis metricsMaxQueueSize")  # fmt: skip


def _without_effect() -> Iterable[Option]:
    yield from _none("no effect", "A child shard starts as soon as its parents have ended, without polling.",
                     "parentShardPollIntervalMillis shardPrioritization")  # fmt: skip
    yield from _none("no effect", "efo tries again with a growing pause.", "taskBackoffTimeMillis"
                     " listShardsBackoffTimeInMillis maxListShardsRetryAttempts"
                     " schedulerInitializationBackoffTimeMillis maxConsecutiveRetriesBeforeThrottling"
                     " maxInitializationAttempts")  # fmt: skip
    yield from _none("no effect", "Leases are renewed in batches, by one task.", "maxLeaseRenewalThreads")
    yield from _none("no effect", "Leases are compared with the shards at each start; it costs one ListShards.",
                     "skipShardSyncAtWorkerInitializationIfLeasesExist skipShardSyncAtStartupIfLeasesExist"
                     " ignoreUnexpectedChildShards leasesRecoveryAuditorExecutionFrequencyMillis"
                     " leasesRecoveryAuditorInconsistencyConfidenceThreshold")  # fmt: skip
    yield from _none("no effect", "Leases of shards that no longer exist are deleted with each shard sync.",
                     "leaseCleanupIntervalMillis completedLeaseCleanupThresholdMillis"
                     " garbageLeaseCleanupThresholdMillis")  # fmt: skip
    yield from _none("no effect", "The user agent is efo's.", "userAgent")


OPTIONS: Final = {option.name.lower(): option for option in _options()}
"""The properties, by their names in lower case."""
POLLING: Final = ("maxrecords", "idletimebetweenreadsinmillis", "retrygetrecordsinseconds", "maxgetrecordsthreadpool")
"""Properties of polling: without retrievalMode, KCL polls if one of them is set."""


_CHAIN: Final = frozenset({"DefaultCredentialsProvider", "DefaultAWSCredentialsProviderChain"})
_IN_CHAIN: Final = frozenset(
    {
        "EnvironmentVariableCredentialsProvider",
        "InstanceProfileCredentialsProvider",
        "ContainerCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper",
        "WebIdentityTokenFileCredentialsProvider",
        "WebIdentityTokenCredentialsProvider",
        "ProcessCredentialsProvider",
    }
)
_PROFILE: Final = frozenset({"ProfileCredentialsProvider"})
_ROLE: Final = frozenset(
    {
        "StsAssumeRoleCredentialsProvider",
        "KclStsAssumeRoleCredentialsProvider",
        "KclSTSAssumeRoleSessionCredentialsProvider",
        "STSAssumeRoleSessionCredentialsProvider",
    }
)
_SECRETS: Final = frozenset(
    {
        "StaticCredentialsProvider",
        "KclStaticCredentialsProvider",
        "BasicAWSCredentials",
        "AwsBasicCredentials",
        "PropertiesFileCredentialsProvider",
        "ClasspathPropertiesFileCredentialsProvider",
        "SystemPropertiesCredentialsProvider",
        "SystemPropertyCredentialsProvider",
    }
)
_EXTERNAL_ID: Final = "externalid="
ROWS: Final = (
    (_CHAIN, "The AWS chain."),
    (_IN_CHAIN, "The AWS chain, which has it; one that comes before it in the chain goes first."),
    (_PROFILE, "With `|name`: that profile. Without: that of `AWS_PROFILE`."),
    (
        _ROLE,
        "`|role ARN|session name`, and `|externalId=...`. Another endpoint of STS is that of the AWS configuration.",
    ),
    (_SECRETS, "Refused: secrets belong into the environment, which the AWS chain reads."),
)
"""The forms, and what they are for efo: a table of docs/kcl.md."""


def credentials_of(option: Option, value: str, problems: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that the value of such a property becomes, and notes on it. Adds to `problems`.

    A value is a list of providers, of which KCL uses the first that has credentials. The values of their arguments are
    not shown: some are secrets.
    """
    section, settings, notes = option.setting.removesuffix(".profile"), {}, []
    for provider in value.split(","):
        name, *arguments = (part.strip() for part in provider.split("|"))
        name = name.rpartition(".")[2]
        if name in _CHAIN:
            continue
        if name in _IN_CHAIN:
            notes.append(f"{option.name}: {name} is asked in its turn by the AWS chain")
        elif name in _PROFILE:
            if arguments and arguments[0]:
                settings[f"{section}.profile"] = arguments[0]
        elif name in _ROLE and section == "kinesis" and arguments:
            settings |= _role(arguments)
        elif name in _ROLE:
            problems.append(f"{option.name}: efo assumes a role for Kinesis alone: use a profile with role_arn")
        elif name in _SECRETS:
            problems.append(
                f"{option.name}: {name} reads secrets where others can: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                " in the environment, and DefaultCredentialsProvider here"
            )
        else:
            problems.append(f"{option.name}: efo knows no such provider of credentials; see the table in docs/kcl.md")
    return settings, notes


def _role(arguments: list[str]) -> dict[str, Any]:
    arn, *others = arguments
    settings = {"kinesis.role_arn": arn}
    for number, other in enumerate(others):
        if other.lower().startswith(_EXTERNAL_ID):
            settings["kinesis.external_id"] = other[len(_EXTERNAL_ID) :]
        elif number == 0 and "=" not in other:
            settings["kinesis.role_session_name"] = other
    return settings
