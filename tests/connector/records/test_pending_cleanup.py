from __future__ import annotations

from connector.events import SlackMessage
from connector.records.pending_cleanup import Notice, PendingCleanup
from connector.records.run_artifacts import RunArtifacts


def test_a_pending_cleanup_is_read_as_it_was_written():
    message = SlackMessage("T1", "C1", "1.0", None, "U1", "look", (), direct=False)
    artifacts = RunArtifacts("C1", "1.0", ("2.0",), has_hourglass=True, team="T1", thread_ts="1.0", run_id="run")
    pending = PendingCleanup((artifacts,), (Notice(message, "T1:C1:1.0:stopped", "🛑 Stopped by Ben."),))
    assert PendingCleanup.from_dict(pending.to_dict()) == pending
    assert PendingCleanup.from_dict({}) == PendingCleanup()
