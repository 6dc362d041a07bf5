// harlow/kinesis-consumer with its checkpoints in Redis, PostgreSQL or MySQL. The arguments after the configuration: the
// kind of the store, where it is, and the name of its table.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	goredis "github.com/go-redis/redis/v8"
	consumer "github.com/harlow/kinesis-consumer"
	"github.com/harlow/kinesis-consumer/store/mysql"
	"github.com/harlow/kinesis-consumer/store/postgres"
	"github.com/harlow/kinesis-consumer/store/redis"

	"peers/meter"
)

const (
	scanInterval = time.Second
	maxRecords   = 1900
)

// The tables as the library's documentation has them.
var columns = map[string]string{
	"postgres": "namespace text NOT NULL, shard_id text NOT NULL, sequence_number numeric NOT NULL, " +
		"PRIMARY KEY (namespace, shard_id)",
	"mysql": "namespace varchar(255) NOT NULL, shard_id varchar(255) NOT NULL, " +
		"sequence_number numeric(65,0) NOT NULL, PRIMARY KEY (namespace, shard_id)",
}

func open(kind, place, table, application string, interval time.Duration) (consumer.Store, func() error) {
	if kind == "redis" {
		options, err := goredis.ParseURL(place)
		meter.Must(err)
		store, err := redis.New(application, redis.WithClient(goredis.NewClient(options)))
		meter.Must(err)
		return store, func() error { return nil }
	}
	database, err := sql.Open(kind, place)
	meter.Must(err)
	_, err = database.Exec(fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s)", table, columns[kind]))
	meter.Must(err)
	meter.Must(database.Close())
	if kind == "postgres" {
		store, err := postgres.New(application, table, place, postgres.WithMaxInterval(interval))
		meter.Must(err)
		return store, store.Shutdown
	}
	store, err := mysql.New(application, table, place, mysql.WithMaxInterval(interval))
	meter.Must(err)
	return store, store.Shutdown
}

func main() {
	settings, m := meter.Start()
	if len(os.Args) != 5 {
		log.Fatal("arguments: CONFIGURATION redis|postgres|mysql PLACE TABLE")
	}
	ctx, cancel := context.WithCancel(context.Background())
	loaded, err := config.LoadDefaultConfig(ctx)
	meter.Must(err)
	service := kinesis.NewFromConfig(loaded, func(options *kinesis.Options) {
		options.BaseEndpoint = aws.String(settings.Endpoint)
	})
	interval := time.Duration(settings.CheckpointSeconds * float64(time.Second))
	checkpoints, shutdown := open(os.Args[2], os.Args[3], os.Args[4], settings.Application, interval)
	reader, err := consumer.New(
		settings.Stream,
		consumer.WithClient(service),
		consumer.WithStore(checkpoints),
		consumer.WithShardIteratorType(string(types.ShardIteratorTypeTrimHorizon)),
		consumer.WithScanInterval(scanInterval),
		consumer.WithMaxRecords(maxRecords),
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
		meter.Must(shutdown())
	})
}
