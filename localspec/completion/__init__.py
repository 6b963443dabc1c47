"""An editor's completion as text alone: where it ends, what of it is shown, what stands around it."""
