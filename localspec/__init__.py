"""localspec."""
