// harlow/kinesis-consumer: it polls every shard, with its checkpoints in DynamoDB.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	tables "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	consumer "github.com/harlow/kinesis-consumer"
	store "github.com/harlow/kinesis-consumer/store/ddb"

	"peers/meter"
)

// It does not retry ProvisionedThroughputExceeded: so at most a second's 2 MiB are asked for in a second.
const (
	scanInterval = time.Second
	maxRecords   = 1900
)

func main() {
	settings, m := meter.Start()
	ctx, cancel := context.WithCancel(context.Background())
	loaded, err := config.LoadDefaultConfig(ctx)
	meter.Must(err)
	service := kinesis.NewFromConfig(loaded, func(options *kinesis.Options) {
		options.BaseEndpoint = aws.String(settings.Endpoint)
	})
	database := dynamodb.NewFromConfig(loaded, func(options *dynamodb.Options) {
		options.BaseEndpoint = aws.String(settings.DynamoDB)
	})
	createTable(ctx, database, settings.Application)
	checkpoints, err := store.New(
		settings.Application,
		settings.Application,
		store.WithDynamoClient(database),
		store.WithMaxInterval(time.Duration(settings.CheckpointSeconds*float64(time.Second))),
	)
	meter.Must(err)
	reader, err := consumer.New(
		settings.Stream,
		consumer.WithClient(service),
		consumer.WithStore(checkpoints),
		consumer.WithShardIteratorType(string(types.ShardIteratorTypeTrimHorizon)),
		consumer.WithScanInterval(scanInterval),
		consumer.WithMaxRecords(maxRecords),
		consumer.WithAggregation(settings.Aggregated),
	)
	meter.Must(err)
	go func() {
		meter.Must(reader.Scan(ctx, func(record *consumer.Record) error {
			meter.Count(m, []types.Record{record.Record})
			return nil
		}))
	}()
	m.UntilTerminated(func() {
		cancel()
		meter.Must(checkpoints.Shutdown())
	})
}

// createTable creates the table of the checkpoints, which the library expects to exist.
func createTable(ctx context.Context, database *dynamodb.Client, name string) {
	_, err := database.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   aws.String(name),
		BillingMode: tables.BillingModePayPerRequest,
		AttributeDefinitions: []tables.AttributeDefinition{
			{AttributeName: aws.String("namespace"), AttributeType: tables.ScalarAttributeTypeS},
			{AttributeName: aws.String("shard_id"), AttributeType: tables.ScalarAttributeTypeS},
		},
		KeySchema: []tables.KeySchemaElement{
			{AttributeName: aws.String("namespace"), KeyType: tables.KeyTypeHash},
			{AttributeName: aws.String("shard_id"), KeyType: tables.KeyTypeRange},
		},
	})
	var exists *tables.ResourceInUseException
	if !errors.As(err, &exists) {
		meter.Must(err)
	}
}
