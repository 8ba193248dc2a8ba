"""Tools: `inputs` are what they are called with, `schemas` what they say they take, `rules` what must become of it."""
