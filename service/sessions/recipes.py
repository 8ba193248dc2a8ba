"""The command `!recipe`: the recipes of an instance, which people start as workers without a model."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

from connector.protocols import Refused
from orchestrator_interactive.interactions.records import Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator_interactive.recipes.orders import CallWorkers, RecipeOrders
    from service.config.config import InstanceConfig
    from service.sessions.workers import StoredWorkers

USAGE = "Write `!recipe run NAME key=value …`, `!recipe status [ID]`, `!recipe cancel ID` or `!recipe list`."
# Slack's composer makes quotation marks curly.
_STRAIGHT = str.maketrans("“”„‘’", '"""\'\'')  # noqa: RUF001


class ThreadRecipes:
    """Implements `connector.protocols.Recipes` with the module `tool-recipes` of each instance.

    Args:
        instances: the configurations of the instances, by their names; a reload replaces them.
    """

    def __init__(self, instances: Mapping[str, InstanceConfig], workers: StoredWorkers) -> None:
        self.instances = instances
        self._workers = workers

    async def carry_out(self, instance_name: str, conversation_id: str, user: str, request_id: str, words: str) -> str:
        """Carry out the words of a command; see the protocol."""
        call = partial(self._call, Key(conversation_id, instance_name), request_id, user)
        try:
            orders = self._orders(instance_name, call)
            match _split(words):
                case ["run", name, *inputs]:
                    try:
                        return await orders.run(name, orders.parsed(name, inputs), request_id)
                    except ValueError as e:
                        raise Refused(f"{e}{_remedy(orders, name)}") from e
                case ["status", *worker] if len(worker) <= 1:
                    return await orders.status(*worker)
                case ["cancel", worker_id]:
                    return await orders.cancel(worker_id, request_id)
                case ["list"]:
                    return orders.list()
        except ValueError as e:
            raise Refused(str(e)) from e
        return USAGE

    def _orders(self, instance_name: str, call: CallWorkers) -> RecipeOrders:
        """Return the recipes of an instance.

        Raises:
            ValueError: it has none, or they cannot be read.
        """
        # Only this command needs them, and jinja2 with them.
        from orchestrator_interactive.config import validate  # noqa: PLC0415
        from orchestrator_interactive.recipes.library import MODULE, RecipesOptions, recipes_of  # noqa: PLC0415
        from orchestrator_interactive.recipes.orders import RecipeOrders  # noqa: PLC0415

        instance = self.instances.get(instance_name)
        tools = () if instance is None else instance.tools
        given = next((each.config for each in tools if each.module == MODULE), None)
        if given is None:
            raise ValueError(f"{instance_name} has no recipes: its configuration lacks the tool {MODULE}.")
        options = validate(RecipesOptions, given, MODULE)
        return RecipeOrders(recipes_of(options), options, call)

    async def _call(self, key: Key, request_id: str, user: str, function: str, /, **arguments: Any) -> Any:
        match function:
            case "dispatch":
                return await self._workers.dispatch(key, request_id, user, arguments)
            case "stop":
                return await self._workers.stop(key, arguments, user)
        return await self._workers.functions[f"workers.{function}"](key, arguments)


def _split(words: str) -> list[str]:
    try:
        return shlex.split(words.translate(_STRAIGHT))
    except ValueError as e:
        raise ValueError(
            'A quotation mark has no partner. Write texts with blanks like this: topic="two words".'
        ) from e


def _remedy(orders: RecipeOrders, name: str) -> str:
    """Return how to run a recipe; blank: there is no such recipe."""
    try:
        return f" Write `!recipe run {orders.usage(name)}`."
    except ValueError:
        return ""
