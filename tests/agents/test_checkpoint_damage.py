"""Saved agents that were damaged or made to harm: one CheckpointError each, without much work."""

import io
import json
import os
import random
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damage_support import damaged

from collapipe_env.agents.learned.agent_layout import numbers
from collapipe_env.agents.learned.checkpoint import LARGEST_METADATA, read_checkpoint
from collapipe_env.agents.learned.hyperparameters import PPOParameters, SACParameters
from collapipe_env.agents.learned.sb3_models import LearnedScheduler, build_model, restore_model, save_model
from collapipe_env.envs.sb3 import CollaPipeVecEnv
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.ground.archives import MEMBERS, PICKLE_BYTES, open_zip, require_tensors
from collapipe_env.ground.errors import CheckpointError
from collapipe_env.ground.files import UNPACKED_ANYWAY
from collapipe_env.scenario import load_scenario

SCENARIO = load_scenario("small")
PARAMETERS = {
    "ppo": PPOParameters(rollout_steps=4, minibatch=8, epochs=1, hidden_units=(8,)),
    "sac": SACParameters(buffer_size=64, learning_starts=4, minibatch=4, hidden_units=(8,)),
}
MEMBER_NAMES = ("metadata.json", "policy.pt", "training.pt")


def model_of(algorithm: str) -> Any:
    env = CollaPipeVectorEnv(num_envs=2, scenario=SCENARIO, learner="surrogate", autoreset_mode="SameStep")
    return build_model(PARAMETERS[algorithm], CollaPipeVecEnv(env), seed=0)


@pytest.fixture(scope="module", params=["ppo", "sac"])
def agent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Algorithm and file of an agent whose optimisers have taken steps."""
    algorithm: str = request.param
    file = tmp_path_factory.mktemp(algorithm) / "agent.zip"
    model = model_of(algorithm)
    model.learn(16)
    save_model(file, model, algorithm, PARAMETERS[algorithm], SCENARIO, {"seed": 0}, [])
    return algorithm, file


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(file: Path, contents: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return file


def saved(state: Any) -> bytes:
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


def loaded(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


def refusal(file: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert len(message) < 3000
    return message


def test_damaged_members_of_an_intact_archive(agent: tuple[str, Path], tmp_path: Path) -> None:
    """Members are damaged, packed again with the right check sums, loaded, played and trained from."""
    algorithm, file = agent
    whole, chance = members(file), random.Random(7)
    observation = np.zeros((1, numbers(read_checkpoint(file).features)), dtype=np.float32)
    model = model_of(algorithm)
    refused = 0
    for number in range(240):
        name = MEMBER_NAMES[number % 3]
        content = damaged(whole[name], chance)
        if name != "metadata.json" and number % 2:
            # Damages of the description inside: elsewhere they mostly miss it.
            with zipfile.ZipFile(io.BytesIO(whole[name])) as inner:
                pickled = next(n for n in inner.namelist() if n.endswith("data.pkl"))
                kept = {n: inner.read(n) for n in inner.namelist()}
            kept[pickled] = damaged(kept[pickled], chance)
            inside = io.BytesIO()
            with zipfile.ZipFile(inside, "w") as inner:
                for part, data in kept.items():
                    inner.writestr(part, data)
            content = inside.getvalue()
        odd = packed(tmp_path / "odd.zip", {**whole, name: content})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of PyTorch, at descriptions of odd tensors
                agent_read = read_checkpoint(odd)
                LearnedScheduler.restore(agent_read, SCENARIO, "odd").act(observation, None)  # type: ignore[arg-type]
                restore_model(model, agent_read, SCENARIO, "odd")
        except CheckpointError as error:
            refused += 1
            if len(str(error)) > 3000:
                raise
    assert refused > 150


def test_damaged_archives(agent: tuple[str, Path], tmp_path: Path) -> None:
    whole, chance, odd = agent[1].read_bytes(), random.Random(8), tmp_path / "odd.zip"
    refused = 0
    for _ in range(200):
        odd.write_bytes(damaged(whole, chance))
        try:
            read_checkpoint(odd)
        except CheckpointError:
            refused += 1
    assert refused > 130


def odd_weights(policy: dict[str, torch.Tensor]) -> dict[str, dict[Any, Any]]:
    name = next(n for n, value in policy.items() if value.ndim == 2)
    value = policy[name]
    return {
        "an integer key": {**policy, 3: value},
        "no tensor": {**policy, name: [1.0]},
        "integers": {**policy, name: value.long()},
        "sparse": {**policy, name: value.to_sparse()},
        "meta": {**policy, name: value.to("meta")},
        "a view of one number": {**policy, name: torch.zeros(1).expand(2**20, 2**20)},
    }


@pytest.mark.parametrize("kind", list(odd_weights({"w": torch.zeros(2, 2)})))
def test_what_is_no_weight_is_refused_unread(agent: tuple[str, Path], tmp_path: Path, kind: str) -> None:
    whole = members(agent[1])
    policy = odd_weights(loaded(whole["policy.pt"]))[kind]
    odd = packed(tmp_path / "odd.zip", {**whole, "policy.pt": saved(policy)})
    assert "where weights of torch.float32 by their names are expected" in refusal(odd)


def test_optimiser_states_are_checked_and_restored_without_their_options(
    agent: tuple[str, Path], tmp_path: Path
) -> None:
    algorithm, file = agent
    whole = members(file)
    states = loaded(whole["training.pt"])
    name = next(n for n in states if n.endswith("optimizer"))
    model = model_of(algorithm)
    for key, value in (("exp_avg", torch.zeros(3, 3)), ("step", torch.tensor(float("nan")))):
        odd_states = loaded(whole["training.pt"])
        odd_states[name]["state"][0][key] = value
        odd = packed(tmp_path / "odd.zip", {**whole, "training.pt": saved(odd_states)})
        with pytest.raises(CheckpointError, match=f"{key} in {name}"):
            restore_model(model, read_checkpoint(odd), SCENARIO, "odd")
    states[name]["param_groups"][0]["betas"] = ("never", "read")
    odd = packed(tmp_path / "odd.zip", {**whole, "training.pt": saved(states)})
    restore_model(model, read_checkpoint(odd), SCENARIO, "odd")
    found, policy = model.get_parameters(), loaded(whole["policy.pt"])
    assert found[name]["param_groups"][0]["betas"] == (0.9, 0.999)
    # All else is as it was saved.
    assert model.num_timesteps == 16
    assert all(torch.equal(found["policy"][n], value) for n, value in policy.items())
    for index, value in states[name]["state"].items():
        assert torch.equal(found[name]["state"][index]["exp_avg"], value["exp_avg"])


def test_deep_and_huge_metadata(agent: tuple[str, Path], tmp_path: Path) -> None:
    whole, odd = members(agent[1]), tmp_path / "odd.zip"
    plain = json.loads(whole["metadata.json"])
    for text, reason in (
        ("[" * 100_000, "nested deeper than 64 levels"),
        (json.dumps({**plain, "steps": 10**400}), "an integer of 1,329 bits"),
        ('{"steps": ' + "9" * 5000 + "}", "Exceeds the limit"),
    ):
        packed(odd, {**whole, "metadata.json": text.encode()})
        assert reason in refusal(odd)
    plain["hyperparameters"]["hidden_units"] = [8192] * 1000
    packed(odd, {**whole, "metadata.json": json.dumps(plain).encode()})
    assert "hidden_units of [8192, 8192" in refusal(odd)
    plain["hyperparameters"].update({f"option{i}": i for i in range(20_000)})
    packed(odd, {**whole, "metadata.json": json.dumps(plain).encode()})
    assert "missing or not known" in refusal(odd)


def test_archives_that_unpack_to_more_are_refused_unread(
    agent: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, odd = members(agent[1]), tmp_path / "odd.zip"
    large = packed(tmp_path / "large.zip", {**whole, "metadata.json": bytes(LARGEST_METADATA + 1)})
    full = packed(tmp_path / "full.zip", {**whole, "training.pt": bytes(UNPACKED_ANYWAY)})
    many = packed(tmp_path / "many.zip", {**whole, **{f"{i}": b"" for i in range(MEMBERS)}})
    unpacked = []
    read = zipfile.ZipFile.read
    monkeypatch.setattr(
        zipfile.ZipFile, "read", lambda self, name, *rest: unpacked.append(name) or read(self, name, *rest)
    )
    assert f"metadata.json unpacks to {LARGEST_METADATA + 1:,} bytes" in refusal(large)
    assert f"above the limit of {UNPACKED_ANYWAY:,}" in refusal(full)
    assert f"members, above the limit of {MEMBERS:,}" in refusal(many)
    assert not unpacked

    # What PyTorch would unpack is looked over as well.
    inside = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole["policy.pt"])) as inner, zipfile.ZipFile(inside, "w") as new:
        for part in inner.namelist():
            new.writestr(part, inner.read(part), zipfile.ZIP_DEFLATED)
    packed(odd, {**whole, "policy.pt": inside.getvalue()})
    assert "policy.pt is damaged (its tensors are compressed" in refusal(odd)
    inside = io.BytesIO()
    with zipfile.ZipFile(inside, "w") as new:
        new.writestr("archive/data.pkl", b"N" * (PICKLE_BYTES + 1))
    packed(odd, {**whole, "policy.pt": inside.getvalue()})
    assert "policy.pt is damaged (its description has" in refusal(odd)


def test_members_that_share_their_bytes_are_refused() -> None:
    inside = io.BytesIO()
    with zipfile.ZipFile(inside, "w") as archive:
        archive.writestr("a", bytes(1_000_000))
        for i in range(80):
            entry = zipfile.ZipInfo(f"b{i}")
            entry.file_size = entry.compress_size = 1_000_000
            entry.header_offset = entry.CRC = 0
            archive.filelist.append(entry)
    with (
        open_zip(inside.getvalue()) as archive,
        pytest.raises(zipfile.BadZipFile, match="its members overlap"),
    ):
        require_tensors(archive, len(inside.getvalue()))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_agent(tmp_path: Path) -> None:
    pipe = tmp_path / "agent.zip"
    os.mkfifo(pipe)
    program = (
        "from pathlib import Path; from collapipe_env.agents.learned.checkpoint import read_checkpoint; "
        f"read_checkpoint(Path({str(pipe)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "not a regular file" in done.stderr.splitlines()[-1]
