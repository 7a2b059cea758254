"""Wrong commands: each mistake is one line that says what is meant, before anything is written."""

import sys
from pathlib import Path

import pytest
from commands_support import FILES, refused

from collapipe_env import evaluate
from collapipe_env.cli.main import main

BAD = {
    "train": [
        ("--scenario mediun", "did you mean 'medium'"),
        ("--scenario odd.yaml --dataset absent", "absent: no such file or folder"),
        ("--scenario lost.yaml", "absent: no such file or folder"),
        ("--graph.scenarios small --graph.scenarios=medium", "--graph.scenarios is given 2 times: name all"),
    ],
    "evaluate": [
        ("--scenario mediun", "did you mean 'medium'"),
        ("--episodes 0", "--episodes = 0: use a number from 1 to 100,000"),
        ("--episodes -1", "--episodes = -1: use a number from"),
        ("--episodes 0_0", "--episodes = 0: use a number from"),
        ("--rounds 0", "--rounds = 0: use a number from 1 to 1,000,000"),
        ("--processes 0", "--processes = 0"),
        (
            "--scenario CollaPipeSurrogate-Small-v0",
            "is the id of an environment: give the name of its scenario",
        ),
        ("--schedulers dsra", "'dsra' is not known: did you mean 'dssra'"),
        ("--schedulers my.zip", "'my.zip' is a file: load it in a file of your own, wrap it in"),
        ("--schedulers my.safetensors", "give a saved agent as --agent my.safetensors"),
        ("--schedulers", "--schedulers is empty"),
        ("--schedulers random random", "random more than once"),
        ("--schedulers graph zoo:graph", "zoo:graph more than once"),
        ("--schedulers dssra --schedulers=pipeline", "--schedulers is given 2 times: name all after one"),
        ("--schedulers agent", "give its file with --agent"),
        ("--agent x.safetensors --schedulers random", "leaves 'agent' out"),
        ("--agent x.safetensors", "cannot read the agent x.safetensors"),
        ("--learner real --scenario odd.yaml --dataset absent", "absent: no such file or folder"),
        ("--learner real --scenario lost.yaml", "absent: no such file or folder"),
        ("--samples 2 --learner surrogate", "--samples 2 needs a trained model, and --learner surrogate has"),
        ("--samples -1", "--samples = -1: use a number from 0 to 100"),
        ("--samples 2 --learner real --task ner", "task 'ner' does not continue texts, so it writes no"),
        ("--save-models --learner surrogate", "--save-models needs a trained model, and --learner surrogate"),
        (
            "--save-models --learner real --scenario small --task language-modelling",
            "trains blocks of style 'pre-ln' on task 'language-modelling', but only language-modelling with",
        ),
        (
            "--save-models --learner real --scenario reviews.yaml",
            "trains blocks of style 'gpt2' on task 'classification'",
        ),
    ],
    "compare": [
        ("--scenarios small mediun", "did you mean 'medium'"),
        ("--scenarios", "--scenarios is empty"),
        ("--scenarios small small", "small is the second one named 'small'"),
        (
            "--scenarios small --scenarios wild",
            "--scenarios is given 2 times: name all after one --scenarios",
        ),
        ("--scenarios odd.yaml --dataset absent --learner real", "absent: no such file or folder"),
        ("--schedulers agent", "give its file with --agent"),
        ("--schedulers broken.py:Mine", "'broken.py:Mine' cannot be imported: ZeroDivisionError: "),
        ("--schedulers pipeline --reference dssra", "--reference 'dssra' does not play"),
        ("--schedulers pipeline --gantt random", "--gantt 'random' does not play"),
        ("--threads 0", "--threads = 0"),
        ("--agent small", "write SCENARIO=FILE"),
        ("--agent small=", "write SCENARIO=FILE"),
        ("--agent three=x", "'three' is not among --scenarios: valid names: medium, small"),
        ("--agent small=none.safetensors", "cannot read the agent none.safetensors"),
    ],
    "tune": [
        ("small", "scenario 'small' has nothing to tune"),
        ("boards --candidates 0", "--candidates = 0: use a number from 1 to 10,000"),
        ("boards --seed -1", "--seed = -1: use a number from 0 to 4,999"),
        ("boards --scheduler dsra-plus", "dssra-plus"),
        ("boards --write small.yaml", "small.yaml: cannot be read"),
        ("flow.yaml --write flow.yaml", "its section dssra_plus cannot be replaced"),
        ("nowhere", "there is no shipped scenario 'nowhere'"),
    ],
    "execute": [
        ("--rounds 0", "--rounds = 0: use a number from 1"),
        ("--time-scale -1", "--time-scale = -1.0: use a number from 0.001 to 10000"),
        ("--time-scale 1", "--time-scale needs --clock wall"),
        ("--slow-down 2", "--slow-down needs --clock none"),
        ("--clock wall", "--clock wall needs --engine ray"),
        ("--clock none", "--clock none needs --engine ray"),
        ("--ray-address auto", "--ray-address needs --engine ray"),
        ("--kill c0d1@1", "--kill needs --engine ray"),
        ("--engine ray --clock virtual --hang c0d1@1", "--hang needs --engine ray with"),
        ("--engine ray --fault c0d1@1", "--fault needs --clock virtual"),
        ("--engine ray --place c0=hall", "--place needs --ray-address"),
        ("--engine ray --ray-address auto --place c0", "--place 'c0' is not ROLES=LABEL"),
        ("--engine ray --ray-address auto --place c9=hall", "--place 'c9' fits no role of small"),
        ("--place c0=a --place c1=b", "--place is given 2 times: name all after one --place"),
        ("--fault c0d1@1 --fault=c0d2@1", "--fault is given 2 times: name all after one --fault"),
        ("--fault c7d0@1", "'c7d0@1' names no device of small"),
        ("--fault c0d3@1", "its devices of cluster c0 are c0d0 to c0d2"),
        ("--fault d2", "c0d1@1.5 is an example"),
        *(
            (f"--fault {text}", "names no device and time")
            for text in ("c0d1@nan", "c0d1@1e300", "c-0d1@1", "c0_0d1@1", "c\u0660d1@1", "c0d0@\u0661")
        ),
        ("--fault c0d1@1000001", "at most 1,000,000 s"),
        ("--fault c0d1@1 c00d1@2", "--fault names c0d1 twice"),
        ("--scheduler pipeline --micro-batches 7", "--micro-batches 7: small allows"),
        ("--scheduler nobody", "nobody"),
    ],
    "scenario": [
        ("show absent.yaml", "cannot be read"),
        ("check absent.yaml", "cannot be read"),
        ("diff small absent.yaml", "cannot be read"),
        ("suggest small --tightness 2", "--tightness = 2.0: use a number from 0 to 1"),
        ("check misspelt.yaml", "did you mean 'radio'"),
        ("check broken.py:Mine", "'broken.py:Mine' cannot be imported: ZeroDivisionError: "),
    ],
    "leaderboard": [
        ("run", "give one of --scheduler NAME, --agent FILE and --submission FOLDER"),
        ("run --scheduler dssra --agent zoo:small-ppo", "give one of --scheduler NAME, --agent FILE and"),
        ("run --agent absent.safetensors", "--agent: absent.safetensors cannot be read"),
        ("run --agent zoo:small-ppo zoo:small-ppo", "hold the same agent: give each training run once"),
        ("run --agent zoo:small-ppo zoo:small-sac", "must be training runs of one algorithm"),
        ("run --agent zoo:small-ppo --cells small medium-thermal", "was trained on 'small'"),
        ("run --scheduler dsra", "did you mean 'dssra'"),
        ("run --scheduler dssra --cells large-wld", "--cells 'large-wld' is not known: did you mean"),
        ("run --scheduler dssra --cells small --cells small", "--cells is given 2 times: name all after one"),
        ("run --scheduler dssra --rounds 101", "--rounds = 101: use a number from 1 to 100"),
        ("run --scheduler dssra --ray-address auto", "--ray-address with --executor local"),
        ("run --submission nowhere", "nowhere is not a folder"),
        ("verify --scheduler dssra", "give one of --results FILE, to play it again, and --hidden"),
        ("verify --scheduler dssra --results no.json", "no.json"),
        ("verify --scheduler broken.py:Mine --results no.json", "broken.py:Mine is code of your own: make a"),
    ],
    "plot": [
        ("nowhere", "is no folder"),
        (".", "has no run.json"),
        ("{run} --pictures dealy", "did you mean 'delay'"),
        ("{run} --schedulers piepline", "did you mean 'pipeline'"),
        ("{run} --pictures delay --out tiny.yaml/paper", "tiny.yaml"),
    ],
    "view": [
        ("nowhere", "is no folder"),
        (".", "has no run.json"),
        ("{run} --episode 7", "use a number from 0 to 0"),
        ("{run} --video film.avi", "ends in .gif or .mp4"),
        ("{run} --video film.gif --scheduler pipeline random", "one scheduler"),
        ("{run} --trace round.txt", "ends in .json"),
        ("{run} --trace round.json --scheduler pipeline random", "one scheduler"),
        ("{run} --trace round.json --round 3", "--round = 3: use a number from 1 to 2"),
        ("{run} --trace tiny.yaml/round.json", "choose another place with --trace"),
        ("{run} --video tiny.yaml/film.gif --frames 1", "choose another place with --video"),
        ("{run} --out tiny.yaml/page.html", "choose another place with --out"),
        ("{run} --fps 0", "0.1 to 60"),
    ],
    "zoo": [
        ("show grahp", "no agent 'grahp': did you mean 'graph'?"),
        ("export zoo.zip agent.zip", "must end in .safetensors"),
        ("export zoo.zip agent.safetensors", "does not exist"),
    ],
    "compere": [("", "command 'compere' is not known: did you mean 'compare'?")],
}
"""Arguments of commands, and words of the answer."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Folder of a finished run."""
    out = tmp_path_factory.mktemp("run")
    evaluate(["pipeline", "random"], "small", seeds=1, rounds=2, out=out)
    return out


@pytest.mark.parametrize(
    ("command", "words"),
    [(f"{name} {given}".rstrip(), words) for name, rows in BAD.items() for given, words in rows],
)
def test_a_mistake_is_one_line_and_nothing_is_written(command, words, run, here: Path, capsys) -> None:
    before = sorted(here.rglob("*"))
    assert words in refused(capsys, command.format(run=run).split())
    assert sorted(here.rglob("*")) == before


SLIPS = [
    ("evaluate small", "Unrecognized options: small"),
    ("compare --shedulers dssra", "Perhaps you meant: --schedulers NAME ..."),
    ("train --reword delay", "Perhaps you meant: --reward NAME"),
    (
        "train --algo pop",
        "invalid choice 'pop' for argument '--algo'. Expected one of ('ppo', 'sac', 'graph')",
    ),
    ("evaluate --episodes", "Missing value for argument '--episodes'"),
    ("evaluate --seed three", "Unrecognized options: --seed"),
    ("execute --rounds three", "Error parsing --rounds: invalid literal for int() with base 10: 'three'"),
    ("view run --fps slow", "Error parsing --fps: could not convert string to float: 'slow'"),
    ("leaderboard", "Missing subcommand"),
]


@pytest.mark.parametrize(("command", "words"), SLIPS)
def test_a_slip_names_the_word_and_what_was_meant(command: str, words: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as end:
        main(command.split())
    assert end.value.code == 2
    assert words in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("package", "command"),
    [
        *(("ray", f"{name} --executor ray") for name in ("train", "evaluate", "compare", "tune boards")),
        ("ray", "leaderboard run --scheduler dssra --executor ray"),
        ("ray", "execute --engine ray"),
        ("ray", "calibrate"),
        ("optuna", "tune boards"),
    ],
)
def test_a_missing_package_is_named_with_the_remedy(
    package, command, here: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for name in ("tuning", "tuning_study"):
        monkeypatch.delitem(sys.modules, f"collapipe_env.evaluation.{name}", raising=False)
    extra = {"optuna": "tune"}.get(package, package)
    told = refused(capsys, command.split())
    assert f"{package}, which is not installed: pip install 'collapipe-env[{extra}]'" in told
    assert sorted(file.name for file in here.iterdir()) == sorted(FILES)
