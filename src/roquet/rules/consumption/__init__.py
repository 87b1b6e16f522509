"""Consumption: what a pull or a pop gives out, what is in flight, and what may be committed."""
