"""The functions of `branch.py`, as the document calls them."""

from interaction_states import said

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.branch import checkout, fork, rewind


async def test_the_functions_change_the_branches_of_a_stack(store) -> None:
    stack = InteractionStack(store, "conversation", "agent_alpha")
    await stack.push(*(said(str(number)) for number in range(12)))
    new_branch_id = await fork(stack, index=10)
    await checkout(stack, "main")
    assert await stack.length() == 12
    await checkout(stack, new_branch_id)
    assert await stack.length() == 11
    await rewind(stack, index=5)
    assert await stack.length() == 6
    assert await fork(stack, index=4, name="my-idea") == "my-idea"
