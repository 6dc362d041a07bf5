"""Third-party Kinesis servers, read by efo without changes: `make foreign`. See docs/proofs.md."""
