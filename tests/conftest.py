"""What holds for all tests."""

from hypothesis import settings

# The first example of a test may load a library, and cores are shared: slow is no failure.
settings.register_profile("roquet", deadline=None)
settings.load_profile("roquet")
