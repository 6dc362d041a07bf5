"""Lease stores, and the keeper that takes and renews leases."""
