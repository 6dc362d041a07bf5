"""`make attacks`: hostile bytes at the service's port, in records and in answers, and hostile neighbours."""
