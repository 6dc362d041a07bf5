"""Servers that others wrote, read by efo as it is: `make foreign`. How and why: docs/foreign.md."""
