"""Third-party Kinesis clients that read FakeKinesis: `make witnesses`. See docs/proofs.md."""
