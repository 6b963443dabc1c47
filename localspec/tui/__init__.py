"""``localspec chat``: a chat in the terminal, over the same client and wire as everybody else."""
