"""A deterministic simulation. One seed is one schedule, and always the same one.

- `engine`: an event loop in virtual time, with an order of callbacks from the seed.
- `simulation`: the state that all actors share; `trial` runs one seed, `campaign` many.
- `agent`: one agent with its model, tools, hooks, log and people; `service`: the whole service.

A new fault is a feature in a world's `FEATURES`, and an actor that asks `sim.occurs(feature, probability)`. A new
invariant is a class in `agent/invariants` or a function in `service/invariants`. The tests that end in `can_fail` show
with deliberate defects that each invariant can fail.
"""
