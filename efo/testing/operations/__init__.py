"""The Kinesis API operations that the fake answers, one module per kind of resource."""
