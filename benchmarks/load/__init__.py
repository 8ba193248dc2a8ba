"""The whole service under load: `python -m benchmarks.load`.

Every part is in a process of its own: one or more services (`amplifier-slack run`), the local Slack, the Redis, and
this driver, which acts as people in Slack and as the model behind provider-anthropic.
"""
