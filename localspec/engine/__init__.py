"""The engine: prompts in, exact text out, speculating. Synchronous; one thread uses it at a time."""
