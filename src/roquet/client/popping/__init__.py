"""Popping: messages taken one by one with a receipt handle, and acknowledged."""
