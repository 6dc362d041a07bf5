// The AWS SDK for Go v2 alone: a goroutine per shard, SubscribeToShard over HTTP/2. No leases, no checkpoints.
package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/awslabs/kinesis-aggregation/go/v2/deaggregator"

	"peers/meter"
)

// Between two calls for one shard: at most one call per second is allowed.
const pause = 1500 * time.Millisecond

type shardEnd struct {
	shard    string
	children []types.ChildShard
}

type client struct {
	config  meter.Config
	meter   *meter.Meter
	kinesis *kinesis.Client
	ended   chan shardEnd
}

func main() {
	settings, m := meter.Start()
	ctx, cancel := context.WithCancel(context.Background())
	loaded, err := config.LoadDefaultConfig(ctx)
	meter.Must(err)
	service := kinesis.NewFromConfig(loaded, func(options *kinesis.Options) {
		options.BaseEndpoint = aws.String(settings.Endpoint)
	})
	c := &client{config: settings, meter: m, kinesis: service, ended: make(chan shardEnd)}
	go c.run(ctx)
	m.UntilTerminated(cancel)
}

// run reads every shard whose parents are gone, and each child once all its parents have ended.
func (c *client) run(ctx context.Context) {
	var shards []types.Shard
	page := &kinesis.ListShardsInput{StreamName: aws.String(c.config.Stream)}
	for page != nil {
		listed, err := c.kinesis.ListShards(ctx, page)
		meter.Must(err)
		shards = append(shards, listed.Shards...)
		page = nil
		if listed.NextToken != nil {
			page = &kinesis.ListShardsInput{NextToken: listed.NextToken}
		}
	}
	known := map[string]bool{}
	for _, shard := range shards {
		known[*shard.ShardId] = true
	}
	for _, shard := range shards {
		if !known[aws.ToString(shard.ParentShardId)] && !known[aws.ToString(shard.AdjacentParentShardId)] {
			go c.read(ctx, *shard.ShardId)
		}
	}
	ended := map[string]bool{}
	for end := range c.ended {
		ended[end.shard] = true
		for _, child := range end.children {
			ready := true
			for _, parent := range child.ParentShards {
				ready = ready && ended[parent]
			}
			if ready {
				go c.read(ctx, *child.ShardId)
			}
		}
	}
}

// read reads a shard to its end, and subscribes again whenever a subscription ends.
func (c *client) read(ctx context.Context, shard string) {
	position := &types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon}
	for {
		response, err := c.kinesis.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
			ConsumerARN: aws.String(c.config.ConsumerARN), ShardId: aws.String(shard), StartingPosition: position,
		})
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			log.Printf("%s: %v", shard, err)
			time.Sleep(pause)
			continue
		}
		stream := response.GetStream()
		for member := range stream.Events() {
			event := member.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value
			c.handle(event.Records)
			if len(event.ChildShards) > 0 {
				c.ended <- shardEnd{shard, event.ChildShards}
				meter.Must(stream.Close())
				return
			}
			position = &types.StartingPosition{
				Type: types.ShardIteratorTypeAfterSequenceNumber, SequenceNumber: event.ContinuationSequenceNumber,
			}
		}
		if err := stream.Err(); err != nil && ctx.Err() == nil {
			log.Printf("%s: %v", shard, err)
		}
	}
}

// handle reads each user record's key, sequence number and length.
func (c *client) handle(records []types.Record) {
	if c.config.Aggregated {
		users, err := deaggregator.DeaggregateRecords(records)
		meter.Must(err)
		records = users
	}
	meter.Count(c.meter, records)
}
