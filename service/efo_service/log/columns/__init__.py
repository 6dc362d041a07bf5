"""Records as columns: laid out when a batch is written, kept until its commit, and joined to one Arrow batch."""
