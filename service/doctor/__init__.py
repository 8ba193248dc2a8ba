"""Whether everything is there that the service needs, looked at from outside: nothing is changed, nothing is posted.

`checkup` is the whole examination, and `findings` is what it says.
"""

from service.doctor.findings import DoctorFinding, FindingLevel

__all__ = ["DoctorFinding", "FindingLevel"]
