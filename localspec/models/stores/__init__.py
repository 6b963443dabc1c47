"""The directories in which programs keep models on this disk, and their layouts; they are only read."""
