package interop;

import com.amazonaws.services.dynamodbv2.local.embedded.DynamoDBEmbedded;
import java.net.URI;
import java.nio.file.Path;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.KinesisClientUtil;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.fanout.FanOutConfig;

/** The Kinesis Client Library as an interop client: one worker in fan-out mode, with its leases in DynamoDB Local. */
public final class KclClient {
    private KclClient() {}

    public static void main(String[] arguments) throws Exception {
        TrustStore.install(Path.of(System.getenv("INTEROP_CA")));
        String stream = System.getenv("INTEROP_STREAM");
        String consumer = System.getenv("INTEROP_CONSUMER");
        KinesisAsyncClient kinesis = KinesisClientUtil.createKinesisAsyncClient(
                KinesisAsyncClient.builder().endpointOverride(URI.create(System.getenv("INTEROP_ENDPOINT"))));
        TranscriptWriter transcript = new TranscriptWriter(System.out);
        new RefusedCalls(kinesis, transcript).run(stream, consumer + "-refused");
        DynamoDbAsyncClient leases = DynamoDBEmbedded.create().dynamoDbAsyncClient();
        scheduler(stream, consumer, kinesis, leases, transcript).run(); // until the runner terminates the process
    }

    private static Scheduler scheduler(
            String stream,
            String consumer,
            KinesisAsyncClient kinesis,
            DynamoDbAsyncClient leases,
            TranscriptWriter transcript) {
        CloudWatchAsyncClient cloudWatch = CloudWatchAsyncClient.create(); // unused: metrics are off
        ConfigsBuilder configs = new ConfigsBuilder(
                new SingleStreamTracker(
                        stream,
                        InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON)),
                consumer,
                kinesis,
                leases,
                cloudWatch,
                "worker",
                () -> new ShardReader(transcript));
        FanOutConfig fanOut = new FanOutConfig(kinesis).streamName(stream).consumerName(consumer);
        return new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig().parentShardPollIntervalMillis(500L),
                // KCL scans the lease table twice per fail-over time; with the default, a child waits up to 20 s.
                configs.leaseManagementConfig().failoverTimeMillis(2000L),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(fanOut));
    }
}
