"""The checks of `efo doctor`. They read; nothing that they call creates, changes, subscribes to or fences anything."""
