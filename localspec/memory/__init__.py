"""The n-gram memory: hashed tables on disk that outlive sessions, models and processes."""
