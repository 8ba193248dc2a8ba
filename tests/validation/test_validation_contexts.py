from __future__ import annotations

import pytest
from example_modules import Mutant

from orchestrator_interactive.validation.context import compaction, rules

_ADD = "        self.messages.append(message)\n"
_FITS = "        if sum(map(tokens, self.messages)) <= budget:\n            return list(self.messages)\n"
_PAIRS = '        while start < len(rows) and rows[start]["role"] == "tool":\n            start += 1\n'
_VIEW = "        return [*system, *rows[start:]]\n"

BROKEN = {
    "the newest first": Mutant(
        _ADD,
        "        self.messages.insert(0, message)\n",
        (
            rules.keeps_order,
            rules.keeps_rows,
            compaction.keeps_pairs,
            compaction.keeps_order,
            compaction.keeps_the_latest,
        ),
        "get_messages() gives another order, or other messages.",
    ),
    "the content as text": Mutant(
        _ADD,
        '        self.messages.append({**message, "content": str(message["content"])})\n',
        (rules.keeps_rows, rules.shows_rows),
        "A message of the role 'assistant' came back with another 'content'",
    ),
    "without metadata": Mutant(
        _ADD,
        '        self.messages.append({k: v for k, v in message.items() if k != "metadata"})\n',
        (rules.keeps_rows, rules.shows_rows),
        "A message of the role 'user' came back with another 'metadata': None instead of {",
    ),
    "without what has no content": Mutant(
        _ADD,
        '        if message.get("content"):\n            self.messages.append(message)\n',
        (rules.keeps_rows, rules.shows_rows),
        "7 messages were added, and 5 come back.",
    ),
    "a view without the ids of the calls": Mutant(
        "            return list(self.messages)\n",
        '            return [{k: v for k, v in row.items() if k != "tool_call_id"} for row in self.messages]\n',
        (rules.shows_rows, compaction.keeps_pairs),
        "A message of the role 'tool' is missing, or is not as it was added.",
    ),
    "added to what was there": Mutant(
        "        self.messages = list(messages)\n",
        "        self.messages += list(messages)\n",
        (rules.can_be_set,),
        "After set_messages() a message from before is still there.",
    ),
    "the caller's list": Mutant(
        "        self.messages = list(messages)\n",
        "        self.messages = messages\n",
        (rules.can_be_set,),
        "After set_messages() with 7 messages, 0 are unchanged.",
    ),
    "a clear that does nothing": Mutant(
        "    async def clear(self):\n        self.messages = []\n",
        "    async def clear(self):\n        pass\n",
        (rules.can_be_cleared,),
        "After clear() there are still messages.",
    ),
    "its own list": Mutant(
        "    async def get_messages(self):\n        return list(self.messages)\n",
        "    async def get_messages(self):\n        return self.messages\n",
        (rules.returns_copies,),
        "Emptying what get_messages() returned empties the conversation.",
    ),
    "a tuple": Mutant(
        "    async def get_messages(self):\n        return list(self.messages)\n",
        "    async def get_messages(self):\n        return tuple(self.messages)\n",
        (rules.returns_copies,),
        "get_messages() returns a tuple, not a list.",
    ),
    "a mark in the caller's row": Mutant(
        _ADD,
        '        message["seen"] = True\n        self.messages.append(message)\n',
        (rules.keeps_callers_rows, rules.keeps_rows),
        "A message that was added is changed afterwards.",
    ),
    "anybody's word": Mutant(
        """        if not message.get("role"):
            raise ValueError("Message must have 'role' field")
""",
        "",
        (rules.refuses_missing_role,),
        "add_message() takes a message without 'role'.",
    ),
    "no compaction": Mutant(
        " <= budget:",
        " <= budget * 100:",
        (
            compaction.fits_a_budget,
            compaction.fits_a_provider,
            compaction.fits_about,
        ),
        "121 messages, about",
    ),
    "no ear for the provider": Mutant(
        "if provider is None:",
        "if provider is provider:",
        (compaction.fits_a_provider,),
        "where the window of the provider leaves room for 3000.",
    ),
    "half of what is too much": Mutant(
        "view = self.compacted(budget)",
        "view = self.compacted(budget * 3)",
        (compaction.fits_about,),
        "come back where token_budget leaves room for 3000.",
    ),
    "results without their call": Mutant(
        _PAIRS,
        "",
        (compaction.keeps_pairs,),
        "With a budget of",
    ),
    "rows by role": Mutant(
        _VIEW,
        '        return [*system, *sorted(rows[start:], key=lambda row: row["role"] != "user")]\n',
        (compaction.keeps_order,),
        "tokens messages are moved or doubled.",
    ),
    "no system rows": Mutant(
        _VIEW, "        return rows[start:]\n", (compaction.keeps_system_rows,), "The system message is left out."
    ),
    "the oldest rows": Mutant(
        _VIEW,
        "        return [*system, *rows[:3]]\n",
        (compaction.keeps_the_latest,),
        "The user's last message is left out.",
    ),
    "for ever": Mutant(
        "        view = self.compacted(budget)\n",
        "        view = self.messages = self.compacted(budget)\n",
        (compaction.is_not_destructive,),
        "get_messages() gives 121 messages before a compaction, and",
    ),
    "in place": Mutant(
        _VIEW,
        '        rows[0]["content"] = "[shortened]"\n        return [*system, *rows[start:]]\n',
        (compaction.is_not_destructive, rules.keeps_callers_rows),
        "get_messages() gives other messages after a compaction than before it.",
    ),
    "by chance": Mutant(
        _VIEW,
        '        import itertools\n        self.n = getattr(self, "n", 0) + 1\n'
        '        return [*system, {"role": "user", "content": f"[view {self.n}]"}, *rows[start:]]\n',
        (compaction.is_reproducible,),
        "Two calls return different views.",
    ),
    "by the session": Mutant(
        _VIEW,
        '        return [*system, {"role": "user", "content": f"[{id(self)}]"}, *rows[start:]]\n',
        (compaction.is_reproducible,),
        "Two sessions with the same conversation get different views.",
    ),
    "silent": Mutant(
        '        await self.hooks.emit("context:post_compact", self.size(view))\n',
        "",
        (compaction.emits_compaction_events,),
        "It compacts and does not emit context:post_compact.",
    ),
    "without numbers": Mutant(
        '"token_count"', '"tokens"', (compaction.emits_compaction_events,), "context:pre_compact lacks token_count."
    ),
    "unannounced": Mutant(
        '["context:pre_compact", "context:post_compact"]',
        '["context:pre_compact"]',
        (compaction.contributes_its_events,),
        "It does not contribute context:post_compact.",
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_context_that_breaks_a_rule_is_told_so(check_broken, broken):
    await check_broken("context_short", broken)


def test_every_rule_for_contexts_has_been_seen_broken():
    assert {broken.rules[0] for broken in BROKEN.values()} == {*rules.RULES, *compaction.COMPACTION_RULES}


async def test_a_system_prompt_of_the_contexts_own_is_no_part_of_the_conversation(examiner):
    prompt = '            self.messages = [{"role": "system", "content": "Be kind."}]'
    path = examiner.changed("context_short", ("        self.messages = []", prompt.strip().join(["        ", ""])))
    report = await examiner.examine(path)
    assert report.passed, report.of("failed")


async def test_a_context_may_note_when_a_message_came(examiner):
    noted = (
        '        noted = {**message.get("metadata", {}), "at": id(message)}\n'
        '        self.messages.append({**message, "metadata": noted})\n'
    )
    report = await examiner.examine(examiner.changed("context_short", (_ADD, noted)))
    [finding] = report.of("warning")
    assert finding.check == rules.keeps_rows.check
    assert finding.problem == "Messages come back with more than they were added with: metadata.at."
    assert report.passed


async def test_without_any_compaction_its_events_are_not_checked(examiner):
    path = examiner.changed("context_short", (" <= budget:", " <= budget * 100:"))
    rule = compaction.emits_compaction_events.check
    [finding] = [f for f in (await examiner.examine(path)).findings if f.check == rule]
    assert finding.outcome == "not checked"
    assert finding.problem == "It has compacted nothing."
