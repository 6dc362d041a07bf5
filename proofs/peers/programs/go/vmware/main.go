// vmware-go-kcl-v2: one worker in fan-out mode, with its leases in DynamoDB.
package main

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/sirupsen/logrus"
	"github.com/vmware/vmware-go-kcl-v2/clientlibrary/config"
	"github.com/vmware/vmware-go-kcl-v2/clientlibrary/interfaces"
	"github.com/vmware/vmware-go-kcl-v2/clientlibrary/worker"
	"github.com/vmware/vmware-go-kcl-v2/logger"

	"peers/meter"
)

// It takes one lease at each sync: the default of a minute delays each shard by a minute.
const shardSyncMillis = 200

type processor struct {
	meter        *meter.Meter
	interval     time.Duration
	checkpointAt time.Time
}

func (p *processor) Initialize(*interfaces.InitializationInput) {
	p.checkpointAt = time.Now().Add(p.interval)
}

func (p *processor) ProcessRecords(input *interfaces.ProcessRecordsInput) {
	if len(input.Records) == 0 {
		return
	}
	meter.Count(p.meter, input.Records)
	if time.Now().After(p.checkpointAt) {
		meter.Must(input.Checkpointer.Checkpoint(input.Records[len(input.Records)-1].SequenceNumber))
		p.checkpointAt = time.Now().Add(p.interval)
	}
}

func (p *processor) Shutdown(input *interfaces.ShutdownInput) {
	if input.ShutdownReason == interfaces.TERMINATE {
		meter.Must(input.Checkpointer.Checkpoint(nil))
	}
}

type factory struct {
	meter    *meter.Meter
	interval time.Duration
}

func (f *factory) CreateProcessor() interfaces.IRecordProcessor {
	return &processor{meter: f.meter, interval: f.interval}
}

func main() {
	settings, m := meter.Start()
	quiet := logrus.New()
	quiet.SetLevel(logrus.ErrorLevel)
	fixed := credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "made-up", "")
	kcl := config.NewKinesisClientLibConfigWithCredential(
		settings.Application, settings.Stream, settings.Region, settings.Worker, aws.CredentialsProvider(fixed),
	).
		WithKinesisEndpoint(settings.Endpoint).
		WithDynamoDBEndpoint(settings.DynamoDB).
		WithInitialPositionInStream(config.TRIM_HORIZON).
		WithEnhancedFanOutConsumerARN(settings.ConsumerARN).
		WithShardSyncIntervalMillis(shardSyncMillis).
		WithLogger(logger.NewLogrusLogger(quiet))
	interval := time.Duration(settings.CheckpointSeconds * float64(time.Second))
	w := worker.NewWorker(&factory{m, interval}, kcl)
	meter.Must(w.Start())
	m.UntilTerminated(w.Shutdown)
}
