"""The wire's methods: a handler for each, called with the daemon, the exchange and the parameters."""
