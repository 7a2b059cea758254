"""The page about RL libraries: its snippets run as they stand there, only shorter, where the library is."""

import re

import example_support
import pytest

PAGE = example_support.ROOT / "docs" / "rl_libraries.md"
TEXT = PAGE.read_text(encoding="utf-8")

# What the libraries warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


def snippet(heading: str, **shorter: str) -> str:
    """The Python code under a heading, with some texts replaced, each of which must be there."""
    (body,) = re.findall(rf"^## {heading}[^\n]*\n(.*?)(?=^## |^### |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    (code,) = re.findall(r"^```python\n(.*?)^```", body, re.DOTALL | re.MULTILINE)
    for name, text in shorter.items():
        code, count = re.subn(rf"{name}=[\w_]+", f"{name}={text}", code)
        assert count, name
    return code


def test_stable_baselines3(capsys) -> None:
    code = next(iter(re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)))
    shorter = {
        "200_000": "1",
        "num_envs=64": "num_envs=2",
        "n_steps=16": "n_steps=4",
        "batch_size=256": "batch_size=8",
        "seeds=5": "seeds=1, rounds=3",
    }
    for shown, run in shorter.items():
        assert code.count(shown) == 1, shown
        code = code.replace(shown, run)
    exec(code, {})
    printed = capsys.readouterr().out
    assert "small: 1 held-out episode of 3 rounds" in printed
    assert "my PPO" in printed


def test_torchrl(capsys) -> None:
    pytest.importorskip("torchrl", reason="TorchRL is not installed")
    names: dict = {}
    exec(snippet("TorchRL"), names)
    assert names["batch"].batch_size == (16, 100)
    assert names["played"]["next", "delay"].shape[0] == 100
    assert (names["played"]["next", "delay"] > 0.0).all()


def test_tianshou(capsys) -> None:
    pytest.importorskip("tianshou", reason="Tianshou is not installed")
    names: dict = {}
    shorter = {"max_epochs": "1", "epoch_num_steps": "64", "collection_step_num_env_steps": "64"}
    code = snippet("Tianshou", **shorter, test_step_num_episodes="2", seeds="1, rounds=3")
    exec(code, names)
    assert names["result"].timing.total_time > 0.0
    assert "Tianshou" in capsys.readouterr().out


def test_minari(tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("minari", reason="Minari is not installed")
    pytest.importorskip("jax", reason="Minari needs JAX to record")
    pytest.importorskip("h5py", reason="Minari needs h5py to store")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    names: dict = {}
    exec(snippet("Minari"), names)
    assert "(101, 42) (101,)" in capsys.readouterr().out
    assert names["dataset"].total_steps == 300
    assert names["again"].unwrapped.scenario.name == "small"
