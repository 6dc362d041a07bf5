package peers;

import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.SdkHttpConfigurationOption;
import software.amazon.awssdk.http.async.SdkAsyncHttpClient;
import software.amazon.awssdk.http.crt.AwsCrtAsyncHttpClient;
import software.amazon.awssdk.http.nio.netty.Http2Configuration;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.awssdk.services.kinesis.model.ChildShard;
import software.amazon.awssdk.services.kinesis.model.Shard;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;
import software.amazon.awssdk.services.kinesis.model.StartingPosition;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardEvent;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardResponseHandler;
import software.amazon.awssdk.utils.AttributeMap;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** The AWS SDK for Java alone, with the HTTP client that the second argument names. No leases, no checkpoints. */
public final class SdkProgram {
    /** Between two calls for one shard: at most one call per second is allowed. */
    private static final long PAUSE_MILLIS = 1500;

    private static final int WINDOW_BYTES = 1024 * 1024;
    private static final int CONCURRENCY = 5000;

    private final Config config;
    private final Meter meter;
    private final KinesisAsyncClient kinesis;
    private final Set<String> ended = ConcurrentHashMap.newKeySet();
    private final Set<String> started = ConcurrentHashMap.newKeySet();
    private final ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();

    private SdkProgram(Config config, Meter meter, SdkAsyncHttpClient http) {
        this.config = config;
        this.meter = meter;
        this.kinesis = KinesisAsyncClient.builder()
                .endpointOverride(URI.create(config.text("endpoint")))
                .httpClient(http)
                .build();
    }

    public static void main(String[] arguments) throws Exception {
        Config config = Config.load(arguments[0]);
        Meter meter = new Meter(config);
        SdkProgram program = new SdkProgram(config, meter, arguments[1].equals("crt") ? crt() : netty());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            program.kinesis.close();
            meter.stopped();
        }));
        program.run();
        new CountDownLatch(1).await();
    }

    /** CRT's own trust store is the system's; the load's authority is not in it. Only the handshake is cheaper. */
    private static SdkAsyncHttpClient crt() {
        return AwsCrtAsyncHttpClient.builder()
                .maxConcurrency(CONCURRENCY)
                .buildWithDefaults(AttributeMap.builder()
                        .put(SdkHttpConfigurationOption.TRUST_ALL_CERTIFICATES, true)
                        .put(SdkHttpConfigurationOption.PROTOCOL, Protocol.HTTP2)
                        .build());
    }

    private static SdkAsyncHttpClient netty() {
        return NettyNioAsyncHttpClient.builder()
                .maxConcurrency(CONCURRENCY)
                .connectionAcquisitionTimeout(Duration.ofSeconds(60))
                .protocol(Protocol.HTTP2)
                .http2Configuration(Http2Configuration.builder()
                        .initialWindowSize(WINDOW_BYTES)
                        .build())
                .build();
    }

    private void run() {
        List<Shard> shards = kinesis.listShards(request -> request.streamName(config.text("stream")))
                .join()
                .shards();
        Set<String> known = shards.stream().map(Shard::shardId).collect(Collectors.toSet());
        for (Shard shard : shards) {
            if (!known.contains(String.valueOf(shard.parentShardId()))
                    && !known.contains(String.valueOf(shard.adjacentParentShardId()))) {
                new Reader(shard.shardId()).subscribe();
            }
        }
    }

    /** Reads one shard to its end, and subscribes again whenever a subscription ends. */
    private final class Reader {
        private final String shard;
        private StartingPosition position =
                StartingPosition.builder().type(ShardIteratorType.TRIM_HORIZON).build();
        private boolean finished;

        Reader(String shard) {
            this.shard = shard;
        }

        void subscribe() {
            SubscribeToShardResponseHandler handler = SubscribeToShardResponseHandler.builder()
                    .subscriber(event -> receive((SubscribeToShardEvent) event))
                    .build();
            kinesis.subscribeToShard(
                            request -> request.consumerARN(config.text("consumer_arn"))
                                    .shardId(shard)
                                    .startingPosition(position),
                            handler)
                    .whenComplete((nothing, error) -> again(error));
        }

        private void again(Throwable error) {
            if (finished) {
                return;
            }
            if (error != null) {
                System.err.println(shard + ": " + error);
            }
            later.schedule(this::subscribe, error == null ? 0 : PAUSE_MILLIS, TimeUnit.MILLISECONDS);
        }

        private void receive(SubscribeToShardEvent event) {
            List<KinesisClientRecord> records =
                    event.records().stream().map(KinesisClientRecord::fromRecord).collect(Collectors.toList());
            meter.add(config.flag("aggregated") ? new AggregatorUtil().deaggregate(records) : records);
            if (!event.childShards().isEmpty()) {
                finished = true;
                ended.add(shard);
                event.childShards().forEach(SdkProgram.this::startChild);
                return;
            }
            position = StartingPosition.builder()
                    .type(ShardIteratorType.AFTER_SEQUENCE_NUMBER)
                    .sequenceNumber(event.continuationSequenceNumber())
                    .build();
        }
    }

    /** Reads a child once all its parents have ended. */
    private void startChild(ChildShard child) {
        if (ended.containsAll(child.parentShards()) && started.add(child.shardId())) {
            new Reader(child.shardId()).subscribe();
        }
    }
}
