"""The words localspec's parts speak: options, requests, results, and the wire's messages."""
