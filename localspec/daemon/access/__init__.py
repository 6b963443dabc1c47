"""Connections: listening, authentication and the bounds on unauthenticated clients."""
