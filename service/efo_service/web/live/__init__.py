"""What the page shows while somebody looks: the shard map, rates and recent events, pushed to all viewers."""
