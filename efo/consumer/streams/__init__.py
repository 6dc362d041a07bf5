"""One consumer of many streams, which are added and removed while it runs."""
