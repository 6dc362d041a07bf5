"""The only rooms that talk to Kinesis."""
