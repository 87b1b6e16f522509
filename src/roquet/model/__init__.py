"""The nouns: frozen values that every floor shares; no clock, no bytes, no files."""
