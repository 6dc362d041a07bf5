"""Lease assignment: which leases a worker takes. Each worker decides for itself, from the lease table (rule R10)."""
