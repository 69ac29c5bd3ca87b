"""Agents in files: what is written is read again; what is wrong with one is told (E5)."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gearshift.decide.learn import checkpoint
from gearshift.decide.learn.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gearshift.decide.learn.network import Network
from gearshift.errors import CheckpointError

INPUTS, ACTIONS = ("a", "b"), ("left", "right", "stay")


def agent(sizes: tuple[int, ...] = (2, 8, 3)) -> Checkpoint:
    network = Network.drawn(sizes, np.random.default_rng(0))
    return Checkpoint(
        knob="split", network=network, inputs=INPUTS, actions=ACTIONS, about={"seed": 3}
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.safetensors"
    write_checkpoint(path, agent())
    found = read_checkpoint(path, "split", INPUTS, ACTIONS)
    assert found.about == {"seed": 3}
    state = np.ones((1, 2))
    assert np.array_equal(found.network(state), agent().network(state))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _no_numbers(path: Path) -> None:
    broken = agent()
    broken.network.weights[0][0, 0] = np.nan
    write_checkpoint(path, broken)


def _of_another_type(path: Path) -> None:
    """One that numpy has no name for."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size].replace(b'"F32"', b'"BF16"').replace(b'"F64"', b'"BF16"')
    told = json.loads(header)
    for name, about in told.items():
        if name != "__metadata__":
            about["shape"] = [(about["data_offsets"][1] - about["data_offsets"][0]) // 2]
    header = json.dumps(told).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])


def _other_schema(path: Path) -> None:
    data = path.read_bytes().replace(b"gearshift.agent", b"somebody.elses0")
    path.write_bytes(data)


def _newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'\\"version\\": 1', b'\\"version\\": 9'))


def _other_knob(path: Path) -> None:
    write_checkpoint(path, replace(agent(), knob="place"))


def _other_inputs(path: Path) -> None:
    write_checkpoint(path, replace(agent(), inputs=("a", "c")))


def _other_sizes(path: Path) -> None:
    write_checkpoint(path, agent((4, 8, 3)))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_cut_short, "cannot be read"),
        (lambda path: path.write_bytes(b"{}"), "cannot be read"),
        (lambda path: path.unlink(), "cannot be read"),
        (_no_numbers, "no numbers"),
        (_of_another_type, "not float32|cannot be read"),
        (_other_schema, "no agent"),
        (_newer, "version 9"),
        (_other_knob, "other knob"),
        (_other_inputs, "other inputs"),
        (_other_sizes, "sizes"),
    ],
)
def test_E5_a_bad_file_is_refused_by_name(
    damage: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "agent.safetensors"
    write_checkpoint(path, agent())
    damage(path)
    with pytest.raises(CheckpointError, match=words) as caught:
        read_checkpoint(path, "split", INPUTS, ACTIONS)
    assert "agent.safetensors" in str(caught.value)
    assert str(tmp_path) not in str(caught.value).replace("agent.safetensors", "")


def test_a_version_is_part_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.safetensors"
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    write_checkpoint(path, agent())
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="version 2, this one reads 1"):
        read_checkpoint(path, "split", INPUTS, ACTIONS)


def test_a_critic_is_kept_beside_the_network(tmp_path: Path) -> None:
    path, state = tmp_path / "agent.safetensors", np.ones((1, 2))
    critic = Network.drawn((2, 4, 1), np.random.default_rng(1))
    write_checkpoint(path, replace(agent(), critic=critic))
    found = read_checkpoint(path, "split", INPUTS, ACTIONS)
    assert found.critic is not None
    assert np.array_equal(found.critic(state), critic(state))
    assert np.array_equal(found.network(state), agent().network(state))
    write_checkpoint(path, agent())
    assert read_checkpoint(path, "split", INPUTS, ACTIONS).critic is None


def test_what_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.safetensors"
    write_checkpoint(path, agent())
    before = path.read_bytes()

    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(path, agent((2, 4, 3)))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before
