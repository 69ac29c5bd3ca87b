"""Who chooses how a region is compiled: what is seen of it, what may be chosen, who chooses."""
