"""From a worker's events to what is sent to a client."""
