"""The connection to Kinesis: the control plane, HTTP/2, and the subscriptions of single shards."""
