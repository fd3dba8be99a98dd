"""README and docs are correct: generated parts are up to date, code runs, links work."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from pufferlib import registry
from pufferlib.cli import COMMANDS
from pufferlib.config import LOGGERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-DPUF_NO_CLONES")


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced code blocks of one language, in order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]


@pytest.fixture(scope="module")
def generate_docs() -> ModuleType:
    path = ROOT / "scripts" / "generate_docs.py"
    spec = importlib.util.spec_from_file_location("generate_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_generated_pages_are_up_to_date(generate_docs: ModuleType) -> None:
    stale = [path.name for path in generate_docs.stale_pages()]
    assert stale == [], "run: make docs"


def test_ocean_lists_envs_of_which_a_seed_ends_below_the_bar(generate_docs: ModuleType) -> None:
    rows = {
        "pong": [{"perf": 0.9}, {"perf": 0.8}],
        "tron": [{"perf": 0.9}, {"perf": 0.7}],
    }
    lines = generate_docs._below({name: {"rows": each} for name, each in rows.items()})

    assert any(line.startswith("- tron: 0.90, 0.70; ") for line in lines)
    assert any(line.startswith("- breakout: no whole run") for line in lines)
    assert not any(line.startswith("- pong") for line in lines)
    assert generate_docs._below({}) == []


def test_lists_in_pages_derive_from_the_registries(generate_docs: ModuleType) -> None:
    used = [
        name
        for page in PAGES
        for _, name, _ in generate_docs.BLOCK.findall(page.read_text(encoding="utf-8"))
    ]
    assert {"envs", "ocean", "commands"} <= set(used) <= generate_docs.BLOCKS.keys()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"puffer {command} " in readme for command in COMMANDS)
    assert all(f"`{logger}`" in generate_docs.loggers_table() for logger in LOGGERS)
    assert all(name in generate_docs.ocean_names() for name in registry.OCEAN_REGISTRY)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 100


def test_measured_tables_summarise_all_seeds(generate_docs: ModuleType) -> None:
    entry = {"return": 2508.0, "return_std": 276.0, "eval": 2600.5, "eval_std": 1.0}
    entry = {**entry, "cleanrl": "2383", "zoo": "2410", "rows": [{"total_steps": 1_000_000}]}
    *_, row = generate_docs.gym_table({"gym-Hopper-v5": entry}).splitlines()
    assert row.endswith(" | 1.0M | 2508.0 +- 276.0 | 2600.5 +- 1.0 | 2383 | 2410 |")
    runs = [
        {
            "env": "gym-X",
            "who": who,
            "steps": 9000,
            "return": value,
            "code": "ab",
            "engine": "torch",
        }
        for who, value in [("ours", -80.0), ("ours", -90.0), ("sb3", 0.25), ("puffer", None)]
    ]
    *_, row, _, codes = generate_docs.defaults_table({"rows": runs}).splitlines()
    assert row == "| X | 9k | -85 (-90 to -80) | - | 0.25 | - | - |"
    assert codes == "All of our figures: code ab, engine torch."
    runs[0]["engine"] = "native"
    *_, codes = generate_docs.defaults_table({"rows": runs}).splitlines()
    assert codes == (
        "Our figures are of several versions. "
        "code ab, engine native: X (`PuffeRL(make(NAME))` 1 of 2 seeds); "
        "code ab, engine torch: X (`PuffeRL(make(NAME))` 1 of 2 seeds, `puffer train NAME`)."
    )


def test_many_seeds_are_compared_with_their_standard_errors(generate_docs: ModuleType) -> None:
    # ours -80 and -84, ten times each: mean -82, variance 4 x 20 / 19, error sqrt(80 / 19 / 20)
    # = 0.46; theirs -81 and -87, five times each: mean -84, error sqrt(9 x 10 / 9 / 10) = 1;
    # the difference 2 has an error of sqrt(0.21 + 1) = 1.10
    returns = {"ours-equal": [-80.0, -84.0] * 10, "sb3-equal": [-81.0, -87.0] * 5}
    row = {"env": "gym-X", "steps": 9000, "code": "ab", "engine": "native"}
    rows = [{**row, "who": who, "return": each} for who, own in returns.items() for each in own]
    assert (
        "X, equal options: ours -82.0 (standard error 0.5, 20 seeds), SB3 -84.0 (standard error "
        "1.0, 10 seeds); the difference is +2.0 with a standard error of 1.1."
    ) in generate_docs.defaults_table({"rows": rows}).splitlines()
    few = generate_docs.defaults_table({"rows": rows[12:]})  # 8 of ours
    assert "standard error" not in few


def test_measured_columns_are_not_checked(generate_docs: ModuleType) -> None:
    figures = {"sps_1core": 12.3e6, "perf": 0.98, "steps": 1.5e6, "seconds": 61.2, "seeds": 3}
    page = generate_docs.ocean_page({"squared": figures, "tmaze/gru": figures})
    cut = generate_docs._without_measured

    assert "| 12.3M | 0.98 (3 seeds) | 1.5M steps, 61 s |" in page
    assert "| tmaze | gru | 0.98 (3 seeds) | 1.5M steps, 61 s |" in page
    assert cut(page) == cut(generate_docs.ocean_page({}))
    # but the other columns are
    assert cut(page.replace("Discrete(9)", "Discrete(8)")) != cut(page)


def test_every_environment_has_a_picture() -> None:
    missing = [
        name for name in registry.OCEAN_REGISTRY if not (ROOT / f"docs/images/{name}.png").exists()
    ]
    assert missing == [], "run: make docs"


@pytest.mark.filterwarnings("ignore:the budget of .* is spent")  # it is one iteration here
@pytest.mark.filterwarnings("ignore:the checkpoint has .* slots, but")  # as checkpoints.md shows
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(tmp_path)  # blocks write checkpoints
    monkeypatch.setattr(registry, "_registered", {})  # and register envs
    names: dict[str, object] = {"__name__": "docs"}
    for number, block in enumerate(blocks(page, "python"), start=1):
        # One iteration instead of a whole run; all else as it is printed.
        tiny = re.sub(r"total_timesteps=[\d_]+", "num_iterations=1", block)
        exec(compile(tiny, f"{page.name}, block {number}", "exec"), names)


def test_environments_of_the_guides_compile_and_pass_the_fuzzer(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    csrc = tmp_path / "csrc"
    shutil.rmtree(csrc / "envs")
    (csrc / "envs").mkdir()
    names = []
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "docs/environments.md"):
        for block in blocks(page, "c"):
            match = re.search(r"^PUF_ENV\((\w+)", block, re.MULTILINE)
            assert match is not None
            names.append(match[1])
            (csrc / "envs" / f"{match[1]}.c").write_text(block)
    (csrc / "envs.def").write_text("".join(f"ENV({name})\n" for name in names))
    sources = [*csrc.glob("*.c"), *csrc.glob("core/*.c"), *csrc.glob("envs/*.c")]

    assert names == ["apples", "orchard"]
    for test in ("fuzz", "snapshot"):
        program, source = tmp_path / test, csrc / "tests" / "core" / f"test_{test}.c"
        command = [compiler, *FLAGS, f"-I{csrc}", source, *sources]
        command += ["-o", program, "-lpthread", "-lm"]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        played = subprocess.run([program], capture_output=True, text=True, check=False)
        assert played.returncode == 0, played.stderr


def test_links_lead_to_files_and_headings() -> None:
    broken = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text):
            path, _, heading = "".join(target).partition("#")
            if path.startswith(("http:", "https:")):
                continue
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (heading and heading not in headings(file)):
                broken.append(f"{page.name} -> {''.join(target)}")

    assert broken == []


def headings(page: Path) -> set[str]:
    """Return the anchors that a page's headings get."""
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
