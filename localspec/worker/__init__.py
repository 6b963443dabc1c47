"""The process that owns a loaded model, started by ``python -m localspec.worker --fd N``."""
