"""Commands on balance strategies: roquet balance, lab."""
