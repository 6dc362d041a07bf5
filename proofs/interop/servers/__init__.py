"""Third-party Kinesis servers, read by efo without changes: `make third-party-servers`. See docs/proofs.md."""
