"""Models on this disk: reading their headers, naming, fingerprinting and pairing them. No numpy here."""
