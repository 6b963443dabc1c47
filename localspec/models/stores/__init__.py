"""Where programs keep models on this disk, and how to read what they keep; nothing here is written to."""
