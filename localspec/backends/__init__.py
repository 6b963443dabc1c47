"""Models that can be run: the contract (:mod:`.base`) and its implementations."""
