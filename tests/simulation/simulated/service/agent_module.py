"""The module file in the mount plan of a simulated instance."""

from simulated.service.agent import mount

__all__ = ["mount"]
