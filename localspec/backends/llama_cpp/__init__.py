"""GGUF models through llama-cpp-python's low-level API."""
