"""Read-only checks of everything that the service depends on. They change nothing and post nothing.

`checkup` runs all checks; `findings` defines their results.
"""

from service.doctor.findings import DoctorFinding, FindingLevel

__all__ = ["DoctorFinding", "FindingLevel"]
