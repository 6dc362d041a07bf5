"""Putting records into a stream: `open_producer`."""
