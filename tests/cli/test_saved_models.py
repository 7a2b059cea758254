"""``--save-models``: each language model as a folder that can be gone on from."""

import json
import shutil
from pathlib import Path

import pytest

from collapipe_env.cli.main import main

STYLED = """name: styled
base: small
workload: {task: language-modelling, batch_size: 8}
learning:
  evaluation_samples: 8
  proxy: {style: llama, width: 8, feedforward: 8, heads: 2, kv_heads: 1, sequence_length: 16, vocabulary: 300}
"""
"""Blocks that can be saved, in a proxy."""
FURTHER = """name: further
base: small
workload:
  task: language-modelling
  style: llama
  batch_size: 8
  width: 8
  feedforward: 8
  heads: 2
  kv_heads: 1
  sequence_length: 16
  vocabulary: 300
learning: {evaluation_samples: 8, proxy: off, checkpoint: kept}
"""
"""The same model as what is priced and trained, from the folder of the first one."""
MODEL = Path("out/evaluation/real-1/pipeline-0-model")


OPTIONS = "--scenario styled.yaml --schedulers pipeline --rounds 1 --processes 1 --no-figures --learner real"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("styled.yaml").write_text(STYLED)
    return ["evaluate", *OPTIONS.split(), "--episodes", "2", "--out", "out"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a command of one episode, and its model."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        Path("styled.yaml").write_text(STYLED)
        command = ["evaluate", *OPTIONS.split(), "--episodes", "1", "--out", "out", "--save-models"]
        assert main(command) == 0
    return folder / "out"


def episodes(folder: str) -> list[dict[str, list[float]]]:
    return json.loads(Path(folder, "results.json").read_text())["episodes"]["pipeline"]


def times() -> dict[str, int]:
    """When each file of the episodes was written."""
    return {
        str(file): file.stat().st_mtime_ns for file in Path("out/evaluation").rglob("*") if file.is_file()
    }


@pytest.mark.slow
def test_models_are_kept_and_gone_on_from(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--save-models"]) == 0
    assert f"model:     {MODEL}/\n" in capsys.readouterr().out
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in MODEL.iterdir()}
    assert len(list(MODEL.parent.glob("*-model*"))) == 1  # of the first episode only

    # The model that is read again has the loss that the trained one had.
    shutil.copytree(MODEL, "kept")
    Path("further.yaml").write_text(FURTHER)
    assert main([*command, "--scenario", "further.yaml", "--out", "more"]) == 0
    assert episodes("more")[0]["initial_loss"] == pytest.approx(episodes("out")[0]["loss"][-1], abs=1e-5)

    # The same again plays nothing, nor does the command without the option.
    before = times()
    assert main([*command, "--save-models"]) == 0
    assert main(command) == 0
    assert times() == before

    # A model that is gone is made again, from its own episode.
    result = episodes("out")
    shutil.rmtree(MODEL)
    assert main(command) == 0
    assert not MODEL.exists()
    assert main([*command, "--save-models"]) == 0
    assert (MODEL / "model.safetensors").read_bytes() == Path("kept/model.safetensors").read_bytes()
    assert [one["loss"] for one in episodes("out")] == [one["loss"] for one in result]
    second = str(MODEL.parent / "pipeline-1.npz")
    assert times()[second] == before[second]

    # A model of another episode does not stay: other options make another one.
    Path("styled.yaml").write_text(STYLED.replace("width: 8", "width: 16"))
    assert main([*command, "--fresh", "--save-models"]) == 0
    assert json.loads((MODEL / "config.json").read_text())["hidden_size"] == 16


def test_an_episode_that_is_played_anew_keeps_its_model_anew(command: list[str], saved: Path) -> None:
    """Hours of training are not lost to a command that lacks the option."""
    shutil.copytree(saved, "out")
    file, weights = MODEL.parent / "pipeline-0.npz", MODEL / "model.safetensors"
    before, written = weights.read_bytes(), weights.stat().st_mtime_ns
    Path(f"{MODEL}.part").mkdir()  # of a run that was stopped
    for changed in (["--samples", "1"], ["--samples", "0"]):
        file.unlink()
        assert main([*command, "--episodes", "1", *changed]) == 0
        assert file.exists()
        assert weights.read_bytes() == before
        assert weights.stat().st_mtime_ns > written
    assert list(MODEL.parent.glob("*-model*")) == [MODEL]


def test_a_start_that_was_refused_does_not_hold_its_folder(
    command: list[str], saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As nothing was played, the command may be corrected."""
    shutil.copytree(saved.parent / MODEL, "kept")
    config = json.loads(Path("kept/config.json").read_text())
    Path("kept/config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    Path("further.yaml").write_text(FURTHER)
    again = [*command, "--scenario", "further.yaml", "--out", "more", "--episodes", "1"]
    assert main(again) == 2
    assert "contradicts the scenario" in capsys.readouterr().err
    Path("kept/config.json").write_text(json.dumps(config))
    Path("further.yaml").write_text(FURTHER.replace("name: further", "name: corrected"))
    assert main(again) == 0
