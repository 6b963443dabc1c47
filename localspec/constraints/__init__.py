"""Constraints on an answer's text: grammars, and the tokens that they allow."""
