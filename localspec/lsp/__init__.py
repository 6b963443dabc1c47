"""The language server: completions of the daemon for every editor that speaks LSP."""
