package meter

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

// Count reads each record's key, sequence number and length, as a handler would.
func Count(m *Meter, records []types.Record) {
	size, read := 0, 0
	for i := range records {
		read += len(aws.ToString(records[i].PartitionKey)) + len(aws.ToString(records[i].SequenceNumber))
		size += len(records[i].Data)
	}
	if m.Detailed {
		keys, data := make([]string, len(records)), make([][]byte, len(records))
		for i := range records {
			keys[i], data[i] = aws.ToString(records[i].PartitionKey), records[i].Data
		}
		m.Details(keys, data)
	}
	if read >= 0 {
		m.Add(len(records), size)
	}
}
