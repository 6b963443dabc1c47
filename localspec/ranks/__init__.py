"""A model over several machines: the first rank decides, the others replay the calls of its backend."""
