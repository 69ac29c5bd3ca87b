"""Tests say themselves when a policy is to decide; nothing is kept beyond a test run."""

import os
import tempfile

os.environ["GEARSHIFT_POLICY"] = "keep"
os.environ["GEARSHIFT_HOME"] = tempfile.mkdtemp(prefix="gearshift-tests-")
