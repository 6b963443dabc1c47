"""The process that owns a loaded model; ``python -m localspec.worker --fd N`` runs it."""
