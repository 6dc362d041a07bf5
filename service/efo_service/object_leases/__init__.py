"""Leases on the object store of the log: one document, changed by compare-and-set."""
