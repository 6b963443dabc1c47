"""The daemon: one process per user that lends loaded models to every client."""
