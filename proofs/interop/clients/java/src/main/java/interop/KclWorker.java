package interop;

import java.net.URI;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.KinesisClientUtil;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.leases.LeaseManagementConfig;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.processor.StreamTracker;
import software.amazon.kinesis.retrieval.fanout.FanOutConfig;
import software.amazon.kinesis.worker.metric.OperatingRange;
import software.amazon.kinesis.worker.metric.impl.linux.LinuxCpuWorkerMetric;

/** A KCL worker of an application that also has efo workers: one lease table, one fan-out consumer. */
public final class KclWorker {
    private static final long STOP_TIMEOUT_SECONDS = 60;

    private KclWorker() {}

    public static void main(String[] arguments) throws Exception {
        TrustStore.install(Path.of(System.getenv("INTEROP_CA")));
        KinesisAsyncClient kinesis = KinesisClientUtil.createKinesisAsyncClient(
                KinesisAsyncClient.builder().endpointOverride(URI.create(System.getenv("INTEROP_ENDPOINT"))));
        DynamoDbAsyncClient leases = DynamoDbAsyncClient.builder()
                .endpointOverride(URI.create(System.getenv("INTEROP_DYNAMODB")))
                .build();
        Scheduler scheduler = scheduler(kinesis, leases);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                scheduler.startGracefulShutdown().get(STOP_TIMEOUT_SECONDS, TimeUnit.SECONDS);
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        scheduler.run();
    }

    private static StreamTracker tracker() {
        String identifiers = System.getenv("INTEROP_STREAM_IDS");
        return identifiers != null
                ? new KclTracker(identifiers)
                : new SingleStreamTracker(
                        System.getenv("INTEROP_STREAM"),
                        InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON));
    }

    private static FanOutConfig fanOut(KinesisAsyncClient kinesis, StreamTracker tracker, String application) {
        FanOutConfig fanOut = new FanOutConfig(kinesis);
        // Of several streams, each has a consumer of the application's name.
        return tracker.isMultiStream()
                ? fanOut.applicationName(application)
                : fanOut.streamName(System.getenv("INTEROP_STREAM")).consumerName(application);
    }

    private static LeaseManagementConfig leases(LeaseManagementConfig config) {
        if ("true".equals(System.getenv("INTEROP_BY_CPU"))) { // KCL's default on EC2, ECS and EKS
            OperatingRange range = OperatingRange.builder().maxUtilization(100).build();
            config.workerUtilizationAwareAssignmentConfig().workerMetricList(List.of(new LinuxCpuWorkerMetric(range)));
        }
        return config.failoverTimeMillis(Long.parseLong(System.getenv("INTEROP_FAILOVER_MILLIS")));
    }

    private static Scheduler scheduler(KinesisAsyncClient kinesis, DynamoDbAsyncClient leases) {
        String application = System.getenv("INTEROP_CONSUMER");
        StreamTracker tracker = tracker();
        boolean migrates = "true".equals(System.getenv("INTEROP_MIGRATES"));
        ConfigsBuilder configs = new ConfigsBuilder(
                tracker,
                application,
                kinesis,
                leases,
                CloudWatchAsyncClient.create(), // unused: metrics are off
                System.getenv("INTEROP_WORKER"),
                new CheckpointingReader.Factory());
        return new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig()
                        .parentShardPollIntervalMillis(500L)
                        .migrateAllEntitiesToLeaseTable(migrates),
                leases(configs.leaseManagementConfig()),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(fanOut(kinesis, tracker, application)));
    }
}
