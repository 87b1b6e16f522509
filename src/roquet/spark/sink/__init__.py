"""The sink: rows become messages, in batches or as half messages of a transaction."""
