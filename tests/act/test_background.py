"""Work that no call may wait for."""

import torch

from gearshift.act.background import Background


def test_it_takes_one_thread_of_torch_and_leaves_the_others_alone() -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    background = Background()
    background.submit(lambda: seen.append(torch.get_num_threads()))
    assert background.settle(30)
    background.close()
    assert seen == [1]
    assert torch.get_num_threads() == before
