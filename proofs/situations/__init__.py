"""Situations that users and attackers bring about, each tried in a process of its own: `make edges`, `make attacks`."""
