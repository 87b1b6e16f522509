"""Terminal: output, progress bars, help, shell completion and exit codes of all commands."""
