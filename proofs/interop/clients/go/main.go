// The AWS SDK for Go v2 as a witness: a goroutine per shard, SubscribeToShard over HTTP/2.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

const (
	noShard = "shardId-000000009999"
	// More than one call a second for one shard is refused for that alone.
	pause = 1500 * time.Millisecond
)

var trimHorizon = types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon}

type witness struct {
	client      *kinesis.Client
	consumerARN *string
	lines       chan any
	ended       chan ending
}

type ending struct {
	shard    string
	children []types.ChildShard
}

func main() {
	ctx := context.Background()
	w := connect(ctx)
	w.register(ctx)
	go w.followLineage(ctx)
	go func() {
		shards := w.listShards(ctx)
		w.say("refused", w.refusal(ctx, "unknown shard", noShard, trimHorizon))
		noNumber := types.StartingPosition{Type: types.ShardIteratorTypeAtSequenceNumber}
		w.say("refused", w.refusal(ctx, "position without its number", shards[0], noNumber))
		time.Sleep(pause)
		for _, shard := range shards {
			go w.read(ctx, shard)
		}
		time.Sleep(pause)
		w.say("refused", w.refusal(ctx, "second subscription", shards[0], trimHorizon))
	}()
	out := json.NewEncoder(os.Stdout)
	for line := range w.lines { // until the driver has heard enough
		must(out.Encode(line))
	}
}

func connect(ctx context.Context) *witness {
	cfg, err := config.LoadDefaultConfig(ctx)
	must(err)
	client := kinesis.NewFromConfig(cfg, func(options *kinesis.Options) {
		options.BaseEndpoint = aws.String(os.Getenv("WITNESS_ENDPOINT"))
	})
	return &witness{client: client, lines: make(chan any), ended: make(chan ending)}
}

// register registers the consumer and waits until it is ACTIVE.
func (w *witness) register(ctx context.Context) {
	stream, err := w.client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{
		StreamName: aws.String(os.Getenv("WITNESS_STREAM")),
	})
	must(err)
	made, err := w.client.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{
		StreamARN:    stream.StreamDescriptionSummary.StreamARN,
		ConsumerName: aws.String(os.Getenv("WITNESS_CONSUMER")),
	})
	must(err)
	w.consumerARN = made.Consumer.ConsumerARN
	for {
		told, err := w.client.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{
			ConsumerARN: w.consumerARN,
		})
		must(err)
		if told.ConsumerDescription.ConsumerStatus == types.ConsumerStatusActive {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (w *witness) listShards(ctx context.Context) []string {
	listed, err := w.client.ListShards(ctx, &kinesis.ListShardsInput{
		StreamName: aws.String(os.Getenv("WITNESS_STREAM")),
	})
	must(err)
	var ids []string
	for _, shard := range listed.Shards {
		ids = append(ids, *shard.ShardId)
	}
	return ids
}

func (w *witness) subscribe(
	ctx context.Context, shard string, position types.StartingPosition,
) (*kinesis.SubscribeToShardEventStream, error) {
	answer, err := w.client.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
		ConsumerARN:      w.consumerARN,
		ShardId:          aws.String(shard),
		StartingPosition: &position,
	})
	if err != nil {
		return nil, err
	}
	return answer.GetStream(), nil
}

// refusal makes a call that must be refused, and returns what the SDK makes of it.
func (w *witness) refusal(
	ctx context.Context, what, shard string, position types.StartingPosition,
) map[string]string {
	stream, err := w.subscribe(ctx, shard, position)
	if err == nil {
		must(stream.Close())
	}
	return map[string]string{"what": what, "error": exceptionName(err)}
}

// exceptionName names the SDK's own type of an error.
func exceptionName(err error) string {
	var inUse *types.ResourceInUseException
	var notFound *types.ResourceNotFoundException
	var invalid *types.InvalidArgumentException
	switch {
	case errors.As(err, &inUse):
		return "ResourceInUseException"
	case errors.As(err, &notFound):
		return "ResourceNotFoundException"
	case errors.As(err, &invalid):
		return "InvalidArgumentException"
	case err == nil:
		return "none"
	default:
		return err.Error()
	}
}

// read reads a shard to its end, subscribing again whenever a subscription ends.
func (w *witness) read(ctx context.Context, shard string) {
	position := trimHorizon
	for {
		stream, err := w.subscribe(ctx, shard, position)
		if err != nil {
			log.Printf("%s: %v", shard, err)
			time.Sleep(pause)
			continue
		}
		for member := range stream.Events() {
			event := member.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value
			for _, record := range event.Records {
				w.say("record", map[string]any{
					"shard": shard, "sequence": record.SequenceNumber, "key": record.PartitionKey, "data": record.Data,
				})
			}
			if len(event.ChildShards) > 0 {
				w.ended <- ending{shard, event.ChildShards}
				return
			}
			position = types.StartingPosition{
				Type:           types.ShardIteratorTypeAfterSequenceNumber,
				SequenceNumber: event.ContinuationSequenceNumber,
			}
		}
		if err := stream.Err(); err != nil {
			log.Printf("%s: %v", shard, err)
		}
	}
}

// followLineage says each shard's end, and starts a child once all its parents have ended.
func (w *witness) followLineage(ctx context.Context) {
	ended := map[string]bool{}
	for end := range w.ended {
		ended[end.shard] = true
		var children []string
		for _, child := range end.children {
			children = append(children, *child.ShardId)
			ready := true
			for _, parent := range child.ParentShards {
				ready = ready && ended[parent]
			}
			if ready {
				go w.read(ctx, *child.ShardId)
			}
		}
		w.say("shard_end", map[string]any{"shard": end.shard, "children": children})
	}
}

func (w *witness) say(what string, value any) {
	w.lines <- map[string]any{what: value}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
