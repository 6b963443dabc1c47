"""The benchmark of a user's model: plain decoding against speculation."""
