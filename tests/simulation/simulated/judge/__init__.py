"""What must hold in every schedule, each with a judge of its own; `Judges` is all of them."""

from .judges import Judges
from .runs import RunRecord, StopRecord

__all__ = ["Judges", "RunRecord", "StopRecord"]
