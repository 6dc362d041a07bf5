"""Reads the shards of one stream: leases in, batches of user records out, acks back to checkpoints."""
