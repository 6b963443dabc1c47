"""Speculation: proposers, verification, and the sampling that both share. Pure; no I/O."""
