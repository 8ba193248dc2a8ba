"""Conservation: what was accepted is in one committed row, was taken back or waits, in the order of acceptance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulated.posts import Post, marks, text_of, words

if TYPE_CHECKING:
    from simulated.invariants.runs import RunRecord
    from simulated.scenario import Scenario


class Deliveries:
    """Follows every message from its acceptance to the row it stands in; `delivered` are their numbers, in order."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._waiting: list[Post] = []
        self._withdrawn: list[int] = []
        self.delivered: list[int] = []
        self._applied: list[str] = []

    def accept(self, post: Post) -> None:
        self._waiting.append(post)

    def edit(self, post: Post) -> None:
        """The agent says that it took this text in the place of the one before."""
        place = self._place_of(post.number)
        if place is None:
            self._scene.blame(f"Message {post.number} was changed, and no longer waits.")
        else:
            self._waiting[place] = post

    def withdraw(self, post: Post) -> None:
        """The agent says that it gave this one back."""
        place = self._place_of(post.number)
        if place is None:
            self._scene.blame(f"Message {post.number} was taken back, and no longer waits.")
        else:
            self._waiting.pop(place)
            self._withdrawn.append(post.number)

    def waiting(self) -> list[Post]:
        """What was accepted and is in no row yet, oldest first."""
        return list(self._waiting)

    def waiting_anew(self) -> list[Post]:
        """What was accepted and is in no row yet, to be given to another process, which accepts it again."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def waits(self, post: Post) -> bool:
        return self._place_of(post.number) is not None

    def has_arrived(self, post: Post) -> bool:
        return post.number in self.delivered

    def row_added(self, row: dict[str, Any]) -> None:
        found = marks(text_of(row))
        if found and row["role"] != "user":
            self._scene.blame(f"Words of a person stand in a row of the role '{row['role']}': message {found[0]}.")
        ids = (row.get("metadata") or {}).get("injections")
        for number in found:
            self._deliver(number, row)
        if ids is not None and len(ids) != len(found):
            self._scene.blame(f"A row says that it holds {len(ids)} messages; there are {len(found)}.")

    def applied(self, ids: list[str]) -> None:
        """`injection:applied` has told of these."""
        for each in ids:
            if each in self._applied:
                self._scene.blame(f"injection:applied told of {each} twice.")
            self._applied.append(each)

    def told(self, run: RunRecord, waiting: int) -> None:
        """The agent says how many messages it still holds. A prompt that it has not written down is its sender's."""
        numbers = [post.number for post in self._waiting if post != run.prompt]
        if waiting != len(numbers):
            self._scene.blame(f"The agent says that {waiting} messages wait; those not delivered are {numbers}.")

    def all_over(self) -> None:
        for post in self._waiting:
            self._scene.blame(f"Message {post.number} was accepted, and is in no row at the end: it is lost.")

    def check_prompt(self, run: RunRecord) -> None:
        """A prompt whose run ended before it was committed is its sender's again."""
        if run.prompt not in self._waiting:
            return
        self._waiting.remove(run.prompt)
        if run.statuses.get("progress") == "success":
            self._scene.blame(f"The run succeeded, and its prompt, message {run.prompt.number}, is in no row.")

    def _deliver(self, number: int, row: dict[str, Any]) -> None:
        if number in self.delivered:
            self._scene.blame(f"Message {number} was delivered twice.")
            return
        self.delivered.append(number)
        place = self._place_of(number)
        if place is None:
            why = "was taken back" if number in self._withdrawn else "nobody accepted it"
            self._scene.blame(f"Message {number} is in a row, and {why}.")
            return
        if place > 0:
            self._scene.blame(f"Message {number} was delivered before message {self._waiting[0].number}, its elder.")
        post = self._waiting.pop(place)
        self._scene.count("message delivered")
        self._check_words(post, row)

    def _place_of(self, number: int) -> int | None:
        return next((i for i, post in enumerate(self._waiting) if post.number == number), None)

    def _check_words(self, post: Post, row: dict[str, Any]) -> None:
        if words(post.text) not in words(text_of(row)):
            self._scene.blame(f"The words of message {post.number} were changed on the way.")
        ids = (row.get("metadata") or {}).get("injections")
        if ids is not None and not post.plain and post.id not in ids:
            self._scene.blame(f"Message {post.number} is in a row that does not know its id.")
