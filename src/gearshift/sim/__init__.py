"""Machines, neighbours and regions that are only computed: what agents are trained in.

Must not know a running model; what regions take here was recorded from real ones.
"""

from importlib.util import find_spec

ENVIRONMENTS = {
    "gearshift/Split-v0": "gearshift.sim.split_env:SplitEnv",
    "gearshift/Rewrite-v0": "gearshift.sim.rewrite_env:RewriteEnv",
    "gearshift/Unroll-v0": "gearshift.sim.unroll_env:UnrollEnv",
}
"""Gymnasium, where that is installed, knows them as soon as this is imported."""

if find_spec("gymnasium") is not None:
    from gymnasium import register, registry

    for environment in ENVIRONMENTS.keys() - registry.keys():
        register(environment, entry_point=ENVIRONMENTS[environment])
