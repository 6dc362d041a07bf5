package interop;

import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.StreamConfig;
import software.amazon.kinesis.common.StreamIdentifier;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy;
import software.amazon.kinesis.processor.MultiStreamTracker;

/** The streams of a multi-stream worker, by their identifiers account:stream:epoch, separated by commas. */
final class KclTracker implements MultiStreamTracker {
    private final List<StreamConfig> streams;

    KclTracker(String identifiers) {
        InitialPositionInStreamExtended start =
                InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);
        streams = Arrays.stream(identifiers.split(","))
                .map(identifier -> new StreamConfig(StreamIdentifier.multiStreamInstance(identifier), start))
                .collect(Collectors.toList());
    }

    @Override
    public List<StreamConfig> streamConfigList() {
        return streams;
    }

    @Override
    public FormerStreamsLeasesDeletionStrategy formerStreamsLeasesDeletionStrategy() {
        return new FormerStreamsLeasesDeletionStrategy.NoLeaseDeletionStrategy();
    }
}
