"""The engine: prompts in, exact text out, by speculation. Synchronous; one thread uses it at a time."""
