"""The rewrites there are to choose from, by the names of the library's entries.

Must not know what any of them takes.
"""

from gearshift.decide.rewrite.view import RewriteView
from gearshift.plan.library import LIBRARY

ENTRIES = tuple(entry.name for entry in LIBRARY)
INDEX = {name: index for index, name in enumerate(ENTRIES)}
MAX_MEASUREMENTS = 6
"""Of one region, beside that of the entry in force."""


def enough(view: RewriteView) -> bool:
    """Whether so many were measured that it runs by the best of them, whoever chooses."""
    return len(view.seconds) > MAX_MEASUREMENTS
