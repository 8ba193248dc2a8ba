"""What the mount plan of a simulated instance names: the module, as a file."""

from simulated.service.agent import mount

__all__ = ["mount"]
