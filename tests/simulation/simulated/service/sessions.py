"""The service's sessions, whose configuration is known to be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service.sessions.manager import InProcessSessionManager

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .slots import Slots


class Sessions(InProcessSessionManager):
    """Mounts nothing before somebody asks for an answer: that would take most of a seed's time.

    Blames a run that begins without a slot, once `watch` has named the slots.
    """

    _watched: tuple[Scenario, Slots] | None = None

    def watch(self, scene: Scenario, slots: Slots) -> None:
        self._watched = scene, slots

    async def execute(self, instance_name: str, conversation_id: str, *given: Any, **more: Any) -> str:
        if self._watched is not None:
            scene, slots = self._watched
            if not slots.is_granted(conversation_id):
                scene.blame(f"A run began in {conversation_id} without a slot.")
        return await super().execute(instance_name, conversation_id, *given, **more)

    async def _preflight(self) -> None:
        """All is well."""
