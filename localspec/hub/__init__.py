"""Downloading models from a hub into the Hugging Face cache, and removing what was downloaded."""

import os

# The library reads these when it is imported: no telemetry, and no warnings, which contain addresses.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_VERBOSITY", "error")
