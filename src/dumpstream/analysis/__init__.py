"""Questions about dump files, one module each."""
