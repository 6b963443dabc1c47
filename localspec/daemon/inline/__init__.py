"""Completions at the cursor, for editors."""
