"""Agents in files: safetensors, with what they were trained for written beside the weights.

A file that is damaged, of another schema, of a newer version or for other sizes is refused by name.
Must not know what an agent decides.
"""

import json
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gearshift.decide.learn.network import Network
from gearshift.errors import CheckpointError

SCHEMA, VERSION = "gearshift.agent", 1
CRITIC = "critic."
"""What the names of its tensors begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    knob: str
    """What it decides."""
    network: Network
    inputs: tuple[str, ...]
    """What each input of the network means."""
    actions: tuple[str, ...]
    about: dict[str, Any]
    """Where and how it was trained: machine, seed, command."""
    critic: Network | None = None
    """What says how good a state is, for those who learn with one."""


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """As a whole or not at all."""
    tensors = _tensors(checkpoint.network)
    if checkpoint.critic is not None:
        tensors |= {f"{CRITIC}{name}": t for name, t in _tensors(checkpoint.critic).items()}
    told = {
        "version": VERSION,
        "knob": checkpoint.knob,
        "inputs": checkpoint.inputs,
        "actions": checkpoint.actions,
        "about": checkpoint.about,
    }
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        fresh.write_bytes(save(tensors, {SCHEMA: json.dumps(told)}))  # several keys: in any order
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def _tensors(network: Network) -> dict[str, np.ndarray]:
    weights = {f"weight.{i}": weight for i, weight in enumerate(network.weights)}
    return weights | {f"bias.{i}": bias for i, bias in enumerate(network.biases)}


def read_checkpoint(
    path: Path, knob: str, inputs: tuple[str, ...], actions: tuple[str, ...]
) -> Checkpoint:
    """Raises CheckpointError, which names the file and what is wrong with it."""
    if not path.is_file():
        raise CheckpointError(f"{path.name} cannot be read: there is no such file")
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except (AttributeError, OSError, SafetensorError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}") from None
    told = _told(path, metadata)
    for what, want in (("knob", knob), ("inputs", list(inputs)), ("actions", list(actions))):
        if told[what] != want:
            raise CheckpointError(f"{path.name} is for other {what} than {knob} has here")
    its = {n.removeprefix(CRITIC): t for n, t in tensors.items() if n.startswith(CRITIC)}
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(CRITIC)}
    return Checkpoint(
        knob=knob,
        network=_network(path, own, (len(inputs), len(actions))),
        inputs=inputs,
        actions=actions,
        about=told["about"],
        critic=_network(path, its, (len(inputs), 1)) if its else None,
    )


def _told(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    if SCHEMA not in metadata:
        raise CheckpointError(f"{path.name} is no agent: it has no {SCHEMA} among its metadata")
    try:
        told = json.loads(metadata[SCHEMA])
        version, names = told["version"], ("knob", "inputs", "actions")
        complete = all(name in told for name in names) and isinstance(told["about"], dict)
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path.name} does not tell what it is for") from None
    if version != VERSION:
        raise CheckpointError(f"{path.name} is of version {version}, this one reads {VERSION}")
    if not complete:
        raise CheckpointError(f"{path.name} does not tell what it is for")
    return dict(told)


def _network(path: Path, tensors: dict[str, np.ndarray], ends: tuple[int, int]) -> Network:
    count = len(tensors) // 2
    try:
        weights = [tensors[f"weight.{index}"].copy() for index in range(count)]
        biases = [tensors[f"bias.{index}"].copy() for index in range(count)]
    except KeyError as missing:
        raise CheckpointError(f"{path.name} has no {missing}") from None
    if any(array.dtype != np.float32 for array in (*weights, *biases)):
        raise CheckpointError(f"{path.name} holds weights that are not float32")
    fits = all(
        w.ndim == 2 and b.shape == (w.shape[1],) for w, b in zip(weights, biases, strict=True)
    )
    joined = all(a.shape[1] == b.shape[0] for a, b in pairwise(weights))
    if not weights or not fits or not joined:
        raise CheckpointError(f"{path.name}: its layers do not fit together")
    if (weights[0].shape[0], weights[-1].shape[1]) != ends:
        raise CheckpointError(f"{path.name}: its sizes are not those of its inputs and actions")
    network = Network(weights, biases)
    if not network.is_sound:
        raise CheckpointError(f"{path.name} holds weights that are no numbers")
    return network
