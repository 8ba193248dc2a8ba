"""Whether everything is there that the service needs, looked at from outside: nothing is changed, nothing is posted."""

from service.doctor.checkup import examined
from service.doctor.findings import Finding, Verdict

__all__ = ["Finding", "Verdict", "examined"]
