"""The Structured Streaming pipeline: decode, quarantine, deduplicate, write and count."""
