// The AWS SDK for Go v2 as an interop client: a goroutine per shard, SubscribeToShard over HTTP/2.
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
	// Between two calls for one shard: at most one call per second is allowed.
	pause = 1500 * time.Millisecond
)

var trimHorizon = types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon}

type client struct {
	kinesis     *kinesis.Client
	consumerARN *string
	lines       chan any
	ended       chan shardEnd
}

type shardEnd struct {
	shard    string
	children []types.ChildShard
}

func main() {
	ctx := context.Background()
	c := connect(ctx)
	c.register(ctx)
	go c.followLineage(ctx)
	go func() {
		shards := c.listShards(ctx)
		c.report("refused", c.refusal(ctx, "unknown shard", noShard, trimHorizon))
		noNumber := types.StartingPosition{Type: types.ShardIteratorTypeAtSequenceNumber}
		c.report("refused", c.refusal(ctx, "position without its number", shards[0], noNumber))
		time.Sleep(pause)
		for _, shard := range shards {
			go c.read(ctx, shard)
		}
		time.Sleep(pause)
		c.report("refused", c.refusal(ctx, "second subscription", shards[0], trimHorizon))
	}()
	out := json.NewEncoder(os.Stdout)
	for line := range c.lines { // until the runner terminates the process
		must(out.Encode(line))
	}
}

func connect(ctx context.Context) *client {
	cfg, err := config.LoadDefaultConfig(ctx)
	must(err)
	service := kinesis.NewFromConfig(cfg, func(options *kinesis.Options) {
		options.BaseEndpoint = aws.String(os.Getenv("INTEROP_ENDPOINT"))
	})
	return &client{kinesis: service, lines: make(chan any), ended: make(chan shardEnd)}
}

// register registers the consumer and waits until it is ACTIVE.
func (c *client) register(ctx context.Context) {
	stream, err := c.kinesis.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{
		StreamName: aws.String(os.Getenv("INTEROP_STREAM")),
	})
	must(err)
	registered, err := c.kinesis.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{
		StreamARN:    stream.StreamDescriptionSummary.StreamARN,
		ConsumerName: aws.String(os.Getenv("INTEROP_CONSUMER")),
	})
	must(err)
	c.consumerARN = registered.Consumer.ConsumerARN
	for {
		described, err := c.kinesis.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{
			ConsumerARN: c.consumerARN,
		})
		must(err)
		if described.ConsumerDescription.ConsumerStatus == types.ConsumerStatusActive {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *client) listShards(ctx context.Context) []string {
	listed, err := c.kinesis.ListShards(ctx, &kinesis.ListShardsInput{
		StreamName: aws.String(os.Getenv("INTEROP_STREAM")),
	})
	must(err)
	var ids []string
	for _, shard := range listed.Shards {
		ids = append(ids, *shard.ShardId)
	}
	return ids
}

func (c *client) subscribe(
	ctx context.Context, shard string, position types.StartingPosition,
) (*kinesis.SubscribeToShardEventStream, error) {
	response, err := c.kinesis.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
		ConsumerARN:      c.consumerARN,
		ShardId:          aws.String(shard),
		StartingPosition: &position,
	})
	if err != nil {
		return nil, err
	}
	return response.GetStream(), nil
}

// refusal makes a call that must be refused, and returns the name of the SDK's error.
func (c *client) refusal(
	ctx context.Context, what, shard string, position types.StartingPosition,
) map[string]string {
	stream, err := c.subscribe(ctx, shard, position)
	if err == nil {
		must(stream.Close())
	}
	return map[string]string{"what": what, "error": exceptionName(err)}
}

// exceptionName returns the SDK's exception type of an error.
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

// read reads a shard to its end, and subscribes again whenever a subscription ends.
func (c *client) read(ctx context.Context, shard string) {
	position := trimHorizon
	for {
		stream, err := c.subscribe(ctx, shard, position)
		if err != nil {
			log.Printf("%s: %v", shard, err)
			time.Sleep(pause)
			continue
		}
		for member := range stream.Events() {
			event := member.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value
			for _, record := range event.Records {
				c.report("record", map[string]any{
					"shard": shard, "sequence": record.SequenceNumber, "key": record.PartitionKey, "data": record.Data,
				})
			}
			if len(event.ChildShards) > 0 {
				c.ended <- shardEnd{shard, event.ChildShards}
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

// followLineage reports each shard's end, and reads a child once all its parents have ended.
func (c *client) followLineage(ctx context.Context) {
	ended := map[string]bool{}
	for end := range c.ended {
		ended[end.shard] = true
		var children []string
		for _, child := range end.children {
			children = append(children, *child.ShardId)
			ready := true
			for _, parent := range child.ParentShards {
				ready = ready && ended[parent]
			}
			if ready {
				go c.read(ctx, *child.ShardId)
			}
		}
		c.report("shard_end", map[string]any{"shard": end.shard, "children": children})
	}
}

func (c *client) report(kind string, value any) {
	c.lines <- map[string]any{kind: value}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
