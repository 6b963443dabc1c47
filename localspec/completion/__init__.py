"""Text of an editor's completion: its end, the part shown, and its context."""
