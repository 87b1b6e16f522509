"""roquet demo: the flights' whole way, from a file to a table that proves nothing was lost."""
