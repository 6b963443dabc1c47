"""The ``localspec`` command: stdout carries the answer, everything else goes to stderr."""
