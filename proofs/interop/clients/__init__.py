"""Third-party Kinesis clients that read FakeKinesis: `make third-party-clients`. See docs/proofs.md."""
