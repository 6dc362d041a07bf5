"""The lease store in DynamoDB, in the table layout of the Kinesis Client Library."""
