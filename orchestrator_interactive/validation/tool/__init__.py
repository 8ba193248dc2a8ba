"""Tools: `fitting` makes inputs from a schema, `inputs` are what they are called with, `rules` what must come of it.

`schemas` has the rules for what tools say they take.
"""
