"""What players settle on after looks at a region: here, one that was recorded."""

import numpy as np

from gearshift.bench.looks import MORE_LOOKS, choice_of
from gearshift.bench.parts import regions
from gearshift.bench.split import QUICK, _unseen
from gearshift.decide.split.actions import NAMES
from gearshift.decide.split.players import Bandit
from gearshift.decide.split.view import SplitView
from gearshift.sim.profiles import SHIPPED, read_profiles
from gearshift.sim.split_world import SplitWorld


class Recorded:
    """Looks at the simulator in place of engines."""

    def __init__(self, seed: int) -> None:
        self.world = SplitWorld(read_profiles(SHIPPED)[:1], np.random.default_rng(seed))
        self.legal = 0
        self.ran: list[str] = []

    def first(self) -> SplitView:
        view = self.world.reset()
        self.legal = len(view.estimates_s)
        return view

    def after(self, view: SplitView, action: int) -> tuple[SplitView, float]:
        self.ran.append(NAMES[action])
        stepped = self.world.step(action)
        return stepped.view, stepped.reward.total


def test_who_has_to_try_may_try_every_way_and_settles_on_one_that_ran() -> None:
    for seed in range(10):
        looks = Recorded(seed)
        chosen = choice_of(Bandit(np.random.default_rng(seed)), looks)
        assert len(looks.ran) == looks.legal + MORE_LOOKS
        assert chosen in looks.ran


def test_a_quick_run_has_a_region_beside_products_and_one_the_agent_never_saw() -> None:
    assert set(QUICK.only) <= set(regions(QUICK.batches))
    divisible = {p.name for p in read_profiles(SHIPPED) if len(p.splits) > 1}
    others = [name for name in QUICK.only if not name.startswith("matmul")]
    assert set(others) & divisible
    assert set(QUICK.only) & _unseen()
