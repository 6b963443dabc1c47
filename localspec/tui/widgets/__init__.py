"""The widgets of the screens, one a file."""
