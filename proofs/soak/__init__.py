"""`make soak`: a whole service for a long time, under load, faults and reshards: nothing grows, and nothing is lost."""
