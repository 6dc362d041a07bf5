"""The manifests for Kubernetes and the IAM policies: their schemas, and whether they agree with efo's settings."""
