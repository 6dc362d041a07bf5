"""The steps of the Dockerfile, run in an empty directory where no container engine is."""
