"""roquet balance: strategies side by side."""
