"""What holds for all tests."""

from hypothesis import settings

# On a busy machine anything takes long now and then: a test says what, and never how long.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
