"""The streams of the service: each is relayed by a task of its own, and SIGHUP adds, changes and removes them."""
