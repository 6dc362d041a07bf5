"""Leases in DynamoDB, in the table layout of the Kinesis Client Library."""
