"""Tools that a model calls in the terminal: programs that offer them, and the conversation with calls."""
