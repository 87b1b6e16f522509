"""Values to plots and one self-contained HTML page."""
