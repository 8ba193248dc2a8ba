"""Recipes: workflows in YAML that run as the provider of a session, without a model.

`schema` reads and checks a recipe, `inputs` its inputs, and `library` finds recipes by name. `transcript` reads the
finished calls from the rows of a conversation, `plan` computes the next ones, and `provider` answers the loop with
them. The loop does the rest: it commits calls before they start, runs them in parallel, asks for approvals, and
resumes. `orders` starts recipes as workers, for the module in `tool` and for the commands of people.
"""
