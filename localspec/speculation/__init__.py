"""Speculation: what is proposed, how it is verified, and the sampling both share. Pure; no I/O."""
