"""Downloading models from a hub into the Hugging Face cache, and removing what was downloaded."""
