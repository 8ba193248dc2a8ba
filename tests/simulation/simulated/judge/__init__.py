"""What must hold in every schedule, each with a judge of its own; `Judges` is all of them."""

from .judges import Judges
from .runs import RunRecord, StopRecord
from .terms import Terms
from .uses import Use

__all__ = ["Judges", "RunRecord", "StopRecord", "Terms", "Use"]
