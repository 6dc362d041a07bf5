package interop;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.awssdk.services.kinesis.model.ConsumerStatus;
import software.amazon.awssdk.services.kinesis.model.KinesisException;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;
import software.amazon.awssdk.services.kinesis.model.StartingPosition;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardResponseHandler;

/** Makes the calls that must be refused, with a separate consumer so that they do not disturb those of KCL. */
final class RefusedCalls {
    private static final String NO_SHARD = "shardId-000000009999";
    /** Between two calls for one shard: at most one call per second is allowed. */
    private static final long PAUSE_MILLIS = 1500;

    private final KinesisAsyncClient kinesis;
    private final TranscriptWriter transcript;

    RefusedCalls(KinesisAsyncClient kinesis, TranscriptWriter transcript) {
        this.kinesis = kinesis;
        this.transcript = transcript;
    }

    void run(String stream, String consumer) throws InterruptedException {
        String arn = register(stream, consumer);
        String shard = kinesis.listShards(request -> request.streamName(stream)).join().shards().get(0).shardId();
        StartingPosition trimHorizon = StartingPosition.builder().type(ShardIteratorType.TRIM_HORIZON).build();
        StartingPosition noNumber = StartingPosition.builder().type(ShardIteratorType.AT_SEQUENCE_NUMBER).build();

        transcript.refused("unknown shard", errorOf(subscribe(arn, NO_SHARD, trimHorizon)));
        transcript.refused("position without its number", errorOf(subscribe(arn, shard, noNumber)));
        Thread.sleep(PAUSE_MILLIS);
        CompletableFuture<Void> first = subscribe(arn, shard, trimHorizon);
        Thread.sleep(PAUSE_MILLIS);
        transcript.refused("second subscription", errorOf(subscribe(arn, shard, trimHorizon)));
        first.cancel(true);
    }

    /** Registers the consumer and waits until it is ACTIVE. */
    private String register(String stream, String consumer) throws InterruptedException {
        String streamArn = kinesis.describeStreamSummary(request -> request.streamName(stream))
                .join()
                .streamDescriptionSummary()
                .streamARN();
        String arn = kinesis.registerStreamConsumer(request -> request.streamARN(streamArn).consumerName(consumer))
                .join()
                .consumer()
                .consumerARN();
        while (kinesis.describeStreamConsumer(request -> request.consumerARN(arn))
                        .join()
                        .consumerDescription()
                        .consumerStatus()
                != ConsumerStatus.ACTIVE) {
            Thread.sleep(200);
        }
        return arn;
    }

    private CompletableFuture<Void> subscribe(String consumerArn, String shard, StartingPosition position) {
        SubscribeToShardResponseHandler ignoring = SubscribeToShardResponseHandler.builder()
                .subscriber(event -> {})
                .build();
        return kinesis.subscribeToShard(
                request -> request.consumerARN(consumerArn).shardId(shard).startingPosition(position), ignoring);
    }

    private static String errorOf(CompletableFuture<Void> call) {
        try {
            call.join();
            return "none";
        } catch (CompletionException failure) {
            Throwable error = failure.getCause();
            return error instanceof KinesisException ? error.getClass().getSimpleName() : error.toString();
        }
    }
}
