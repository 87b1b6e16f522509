"""The nouns: frozen values that every layer shares; no clock, no bytes, no files."""
