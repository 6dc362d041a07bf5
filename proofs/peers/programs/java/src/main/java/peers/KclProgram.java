package peers;

import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.KinesisClientUtil;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.exceptions.InvalidStateException;
import software.amazon.kinesis.exceptions.ShutdownException;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.fanout.FanOutConfig;

/** KCL 3: one worker in fan-out mode at its defaults, with its leases in DynamoDB; metrics are off. */
public final class KclProgram {
    private static final long STOP_SECONDS = 60;

    private KclProgram() {}

    public static void main(String[] arguments) throws Exception {
        Config config = Config.load(arguments[0]);
        Meter meter = new Meter(config);
        KinesisAsyncClient kinesis = KinesisClientUtil.createKinesisAsyncClient(
                KinesisAsyncClient.builder().endpointOverride(URI.create(config.text("endpoint"))));
        DynamoDbAsyncClient leases = DynamoDbAsyncClient.builder()
                .endpointOverride(URI.create(config.text("dynamodb")))
                .build();
        Scheduler scheduler = scheduler(config, meter, kinesis, leases);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                scheduler.startGracefulShutdown().get(STOP_SECONDS, TimeUnit.SECONDS);
            } catch (Exception error) {
                error.printStackTrace();
            }
            meter.stopped();
        }));
        scheduler.run();
    }

    private static Scheduler scheduler(
            Config config, Meter meter, KinesisAsyncClient kinesis, DynamoDbAsyncClient leases) {
        String stream = config.text("stream");
        Duration interval = Duration.ofMillis((long) (config.number("checkpoint_seconds") * 1000));
        ConfigsBuilder configs = new ConfigsBuilder(
                new SingleStreamTracker(
                        stream,
                        InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON)),
                config.text("application"),
                kinesis,
                leases,
                CloudWatchAsyncClient.create(), // unused: metrics are off
                config.text("worker"),
                () -> new Processor(meter, interval));
        FanOutConfig fanOut =
                new FanOutConfig(kinesis).streamName(stream).consumerArn(config.text("consumer_arn"));
        return new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig(),
                configs.leaseManagementConfig(),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(fanOut));
    }

    /** Counts the records of a shard, and checkpoints in intervals and at the end. */
    private static final class Processor implements ShardRecordProcessor {
        private final Meter meter;
        private final Duration interval;
        private Instant checkpointAt;

        Processor(Meter meter, Duration interval) {
            this.meter = meter;
            this.interval = interval;
        }

        @Override
        public void initialize(InitializationInput input) {
            checkpointAt = Instant.now().plus(interval);
        }

        @Override
        public void processRecords(ProcessRecordsInput input) {
            meter.add(input.records());
            if (Instant.now().isAfter(checkpointAt)) {
                checkpoint(input.checkpointer());
                checkpointAt = Instant.now().plus(interval);
            }
        }

        @Override
        public void shardEnded(ShardEndedInput input) {
            checkpoint(input.checkpointer());
        }

        @Override
        public void shutdownRequested(ShutdownRequestedInput input) {
            checkpoint(input.checkpointer());
        }

        @Override
        public void leaseLost(LeaseLostInput input) {}

        private static void checkpoint(RecordProcessorCheckpointer checkpointer) {
            try {
                checkpointer.checkpoint();
            } catch (InvalidStateException | ShutdownException error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
