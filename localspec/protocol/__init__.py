"""The types that localspec's parts exchange: options, requests, results, and the wire's messages."""
