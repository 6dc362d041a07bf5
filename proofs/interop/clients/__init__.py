"""Clients that others wrote, held against FakeKinesis: `make witnesses`. How and why: docs/witnesses.md."""
