"""The one error that the recipe raises on purpose."""


class RecipeError(Exception):
    """Something the caller can put right: a sentence of what happened and what to do about it."""
