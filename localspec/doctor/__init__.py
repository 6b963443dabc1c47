"""What is usable here, and what to do where something is not."""
