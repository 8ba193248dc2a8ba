from __future__ import annotations

from service.config.config import load_config
from service.sessions.mount_plan import mount_plan


async def test_the_agent_of_the_page_rolls_its_die(page, tmp_path, make_session):
    (agent,), (tool,), (prompt,) = page.blocks("yaml"), page.blocks("python"), page.blocks("text")
    (tmp_path / "agent.yaml").write_text(agent)
    (tmp_path / "amplifier_module_tool_dice").mkdir()
    (tmp_path / "amplifier_module_tool_dice/__init__.py").write_text(tool)
    (instance,) = load_config(tmp_path / "agent.yaml").instances.values()
    async with make_session(mount_plan(instance, "provider-demo", tmp_path)) as session:
        assert "of 6" in await session.execute(prompt.strip())
