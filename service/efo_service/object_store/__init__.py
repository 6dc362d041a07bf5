"""Object stores: the few calls that the log needs, over Amazon S3, Google Cloud Storage and Azure Blob Storage."""
