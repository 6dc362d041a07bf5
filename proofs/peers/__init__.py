"""efo measured beside its peers, on the same servers: `make peers`. See docs/peers.md."""
