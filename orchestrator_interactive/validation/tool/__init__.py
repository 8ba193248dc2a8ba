"""Validate tools: `input_generation` makes inputs from a schema, `inputs` selects those of a tool.

`rules` has the rules for tools, `schemas` those for their input schemas.
"""
