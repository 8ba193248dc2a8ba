"""Puts the event loop in virtual time, which lies beside the simulation, within reach of these tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))
