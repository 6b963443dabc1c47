"""The pair's abilities, each measured by a test of its own on what it was not trained on."""
