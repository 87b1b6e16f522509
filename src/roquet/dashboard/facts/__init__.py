"""Facts of the dashboard's pages: typed values, made of answers and of samples."""
