"""The page's snippets run as they stand there, only shorter, and what it links to and names is there."""

import re

import example_support

PAGE = example_support.ROOT / "docs" / "rl_libraries.md"
OTHERS = {"battery_process.py": PAGE.with_name("how_to_process.md")}
"""Pages of examples in which nothing learns."""
SHORTER = {"200_000": "1", "num_envs=64": "num_envs=2", "n_steps=32": "n_steps=4", "512": "8"}
EVALUATION = {"seeds=5": "seeds=1, rounds=3"}


def test_snippets_run(capsys) -> None:
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for shown, run in (SHORTER | EVALUATION).items():
        assert shown in text
        text = text.replace(shown, run)
    exec(text, {})
    printed = capsys.readouterr().out
    assert "small: 1 held-out episode of 3 rounds" in printed
    assert "my PPO" in printed


def test_links_and_files_are_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    targets = set(re.findall(r"\]\(([^)]+)\)", text))
    assert len(targets) > 5
    for target in targets:
        assert (PAGE.parent / target.partition("#")[0]).exists(), target
    for path in example_support.EXAMPLES.rglob("*"):
        if path.suffix in (".py", ".yml"):
            page = OTHERS[path.name].read_text(encoding="utf-8") if path.name in OTHERS else text
            assert f"(../{path.relative_to(example_support.ROOT).as_posix()})" in page, path
    for path in re.findall(r"examples/[\w/]+\.\w+", text):
        assert (example_support.ROOT / path).is_file(), path


def test_the_readme_leads_here() -> None:
    assert "(docs/rl_libraries.md)" in (example_support.ROOT / "README.md").read_text(encoding="utf-8")
