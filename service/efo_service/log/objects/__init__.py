"""The embedded log on an object store: a commit is one conditional create. Its format: docs/log.md."""
