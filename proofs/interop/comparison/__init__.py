"""The fake beside any other Kinesis, AWS's too: the same calls on both, and what differs. `make aws-conformance`."""
