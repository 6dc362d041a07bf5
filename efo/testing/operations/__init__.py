"""The Kinesis API operations that the fake supports, one module per type of resource."""
