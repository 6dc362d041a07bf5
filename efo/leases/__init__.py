"""Lease stores, and the keeper that renews and takes leases."""
