"""Recipes: workflows in YAML that run as the provider of a session, without a model.

`schema` reads and checks a recipe, `inputs` its inputs, and `library` finds recipes by name. `transcript` reads from
the rows of a conversation what was done, `plan` computes what comes next, and `provider` answers the loop with it. The
loop does the rest: it commits calls before they start, runs them in parallel, asks for approvals, and resumes. `tool`
lets an agent start recipes as workers.
"""
