"""A whole conversation played in simulated time: agent, model, tools, hooks, people, and judges.

One seed is one conversation, and always the same one. `trial.tried(seed)` plays it; `campaign` plays many.

- `engine`: an event loop in virtual time whose order of callbacks comes from the seed.
- `cast`: who plays. A new kind of trouble is a function (a temper of tools or hooks), a step of the model or an act of
  the crowd.
- `features`: the kinds of trouble by name, and how many of the seeds have each.
- `judge`: what must hold. A new invariant is a class that `Invariants` tells what it needs; it blames in one sentence.
  `terms` are the options of the loop that a seed has.
- `world`: one conversation, from its first prompt to the runs in calm that read whatever is left.
- `broken`: parts that are broken on purpose, to see that the judges notice.

The agent is met at its public doors only: `session.execute`, the orchestrator's capabilities, the cancellation token,
hooks, and the contracts of providers, tools and contexts.
"""
