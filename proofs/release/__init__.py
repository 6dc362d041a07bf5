"""Whether a release can be published: everything it has is built, installed and tried."""
