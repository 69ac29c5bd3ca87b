"""The environment variables Gearshift heeds, all read here.

Must not know what they are used for.
"""

import os
import tempfile
from pathlib import Path


def policy() -> str:
    """Who decides, where `adapt` is not told: `GEARSHIFT_POLICY`, else the bandit."""
    return os.environ.get("GEARSHIFT_POLICY", "bandit")


def home() -> Path:
    """Where profiles persist: `GEARSHIFT_HOME`, else a folder of the user's cache."""
    given = os.environ.get("GEARSHIFT_HOME")
    try:
        return Path(given or "~/.cache/gearshift").expanduser()
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / f"gearshift-{os.getuid()}"
