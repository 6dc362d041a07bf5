"""What all clients of AWS share: credentials, the service's clock, sessions of aiobotocore; and what may be shown."""
