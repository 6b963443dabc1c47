"""Checks of what works on this machine, with remedies."""
