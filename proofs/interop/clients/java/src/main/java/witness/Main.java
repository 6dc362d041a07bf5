package witness;

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

/** The Kinesis Client Library as a witness: one worker in fan-out mode, its leases in DynamoDB Local. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Trust.only(Path.of(System.getenv("WITNESS_CA")));
        String stream = System.getenv("WITNESS_STREAM");
        String consumer = System.getenv("WITNESS_CONSUMER");
        KinesisAsyncClient kinesis = KinesisClientUtil.createKinesisAsyncClient(
                KinesisAsyncClient.builder().endpointOverride(URI.create(System.getenv("WITNESS_ENDPOINT"))));
        Lines lines = new Lines(System.out);
        new Refusals(kinesis, lines).provoke(stream, consumer + "-refused");
        DynamoDbAsyncClient leases = DynamoDBEmbedded.create().dynamoDbAsyncClient();
        scheduler(stream, consumer, kinesis, leases, lines).run(); // until the driver has heard enough
    }

    private static Scheduler scheduler(
            String stream, String consumer, KinesisAsyncClient kinesis, DynamoDbAsyncClient leases, Lines lines) {
        CloudWatchAsyncClient nowhere = CloudWatchAsyncClient.create();
        ConfigsBuilder configs = new ConfigsBuilder(
                new SingleStreamTracker(
                        stream,
                        InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON)),
                consumer,
                kinesis,
                leases,
                nowhere,
                "worker",
                () -> new ShardReader(lines));
        FanOutConfig fanOut = new FanOutConfig(kinesis).streamName(stream).consumerName(consumer);
        return new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig().parentShardPollIntervalMillis(500L),
                // Leases are looked at twice a fail-over time: a child need not wait for its reader for 20 s.
                configs.leaseManagementConfig().failoverTimeMillis(2000L),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(fanOut));
    }
}
