"""Checkpoints of other libraries become efo's leases, and back."""
