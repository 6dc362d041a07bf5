"""The Structured Streaming pipeline: decode, quarantine, de-duplicate, write and count."""
