"""Write the parts of the docs that the code knows best.

    python scripts/generate_docs.py            docs/configuration.md, docs/ocean.md, the tables in
                                               docs/environments.md and docs/performance.md, and
                                               pictures that are missing
    python scripts/generate_docs.py --redraw   draw all pictures anew
    python scripts/generate_docs.py --check    change nothing; exit 1 if a page is out of date

Measured figures come from benchmarks/results/, which benchmarks/learning.py writes. They are no
part of `--check`: a new measurement is not a stale page.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pufferlib import config
from pufferlib.native import NativeInfo, infos
from pufferlib.registry import make
from pufferlib.spaces import action_layout, flatten_action
from pufferlib.vectorization import VectorEnv

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"

NOTICE = "<!-- Written by scripts/generate_docs.py: change the code it reads, then run it. -->"
TABLE = re.compile(r"(<!-- generated: envs -->\n).*?(<!-- end -->)", re.DOTALL)
FACTS = ("env", "group", "what one does", "observations", "actions", "agents", "score", "perf")
MEASURED = ("steps/s, 1 core", "perf reached", "after")
MEASURED_BEGIN, MEASURED_END = "<!-- measured -->", "<!-- end of measured -->"
PICTURE_STEPS = {  # a game that looks under way
    "connect4": 9,
    "memory": 10,
    "cartpole": 8,
    "bandit": 13,
    "password": 5,
    "stochastic": 60,
    "chain": 8,
    "tmaze": 12,
    "multiagent": 9,
    "masked": 7,
    "hybrid": 3,
}
PICTURE_STEPS_ELSE = 120


def configuration_page() -> str:
    """Return the reference of every option, section by section."""
    lines = [
        "# Configuration",
        "",
        NOTICE,
        "",
        "Every option of a run. The same names work in three places: as keywords of `PuffeRL`",
        "(section `train`), in an ini file (`[train]` and `learning_rate = 1e-3`), and on the",
        "command line (`--train.learning-rate 1e-3`). How the layers stack is told in",
        "[training.md](training.md#configuration); params of the environments stand in",
        "[ocean.md](ocean.md).",
    ]
    for section in ("train", "vec", "policy", "log"):
        rows = [
            [f"`{option.key}`", f"`{option.type}`", f"`{_spelled(option.default)}`", option.help]
            for option in config.describe(section)
        ]
        lines += ["", f"## {section}", "", *_table(("key", "type", "default", "meaning"), rows)]
    return "\n".join(lines) + "\n"


def ocean_page(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of all C environments; envs missing in `measured` get empty cells."""
    facts = {name: _facts(info) for name, info in infos().items()}
    headings: tuple[str, ...] = FACTS
    rows = list(facts.values())
    if measured:
        headings += MEASURED
        rows = [row + _figures(measured.get(name, {})) for name, row in facts.items()]
    lines = [
        "# Ocean",
        "",
        NOTICE,
        "",
        "The environments in C that come with the library. Each reports `score`, its natural",
        "number, and `perf`, from 0 to 1 where 1 is solved. `puffer envs NAME` shows the same",
        "facts in the terminal, `puffer train NAME` trains on one.",
        "",
        *_table(headings, rows),
        *_variants(measured),
    ]
    for info in infos().values():
        lines += ["", f"## {info.name}", "", f"![{info.name}](images/{info.name}.png)", ""]
        lines += [f"{info.doc[0].upper()}{info.doc[1:]}.", ""]
        params = [
            [f"`{p.name}`", f"`{p.spell(p.default)}`", _range(p.choices, p.low, p.high), p.doc]
            for p in info.params
        ]
        lines += _table(("param", "default", "range", "meaning"), params)
        lines += [
            "",
            *_table(("metric", "meaning"), [[f"`{m.name}`", m.doc] for m in info.metrics]),
        ]
    return "\n".join(lines) + "\n"


def environments_table() -> str:
    """Return the short table inside docs/environments.md."""
    rows = [_facts(info)[:6] for info in infos().values()]
    source = [[f"[{row[0]}](../csrc/envs/{name}.c)", *row[1:]] for name, row in zip(infos(), rows)]
    return "\n".join(_table(FACTS[:6], source))


def gym_table(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of Gymnasium's environments beside what others have published."""
    rows = []
    for name, row in measured.items():
        steps = max(seed["total_steps"] for seed in row["rows"])
        own = [f"{row[key]:.1f} +- {row[f'{key}_std']:.1f}" for key in ("return", "eval")]
        ini = f"{name.lower().replace('-', '_')}.ini"
        name = f"[{name}](../pufferlib/configs/{ini})"
        rows.append([name, f"{steps / 1e6:.1f}M", *own, row["cleanrl"], row["zoo"]])
    headings = (
        "env",
        "steps",
        "return",
        "likeliest actions",
        "CleanRL, return",
        "RL Zoo, likeliest",
    )
    return "\n".join(_table(headings, rows))


CONTESTANTS = {  # of benchmarks/learning_defaults.py
    "ours": "`PuffeRL(make(NAME))`",
    "puffer": "`puffer train NAME`",
    "sb3": "SB3",
    "ours-equal": "equal: ours",
    "sb3-equal": "equal: SB3",
}


def defaults_table(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the table of what a newcomer's lines reach, beside Stable-Baselines3."""
    by_env: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in measured["rows"]:
        by_env.setdefault(row["env"], {}).setdefault(row["who"], []).append(row)
    rows = []
    for env, by_who in by_env.items():
        steps = next(iter(by_who.values()))[0]["steps"]
        cells = [_result(by_who.get(who, [])) for who in CONTESTANTS]
        rows.append([env.removeprefix("gym-"), f"{steps // 1000}k", *cells])
    return "\n".join(_table(("env", "steps", *CONTESTANTS.values()), rows))


def _result(seeds: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean over seeds, and the least and the greatest of them."""
    returns = [row["return"] for row in seeds if row["return"] is not None]
    if not returns:
        return "-"
    digits = 2 if max(map(abs, returns)) < 10 else 0
    low, high = (f"{each:.{digits}f}" for each in (min(returns), max(returns)))
    mean = f"{sum(returns) / len(returns):.{digits}f}"
    return mean if low == high else f"{mean} ({low} to {high})"


def write_measured_tables() -> None:
    """Put the figures of benchmarks/results/ into docs/performance.md."""
    page = DOCS / "performance.md"
    text = page.read_text(encoding="utf-8")
    for name, table in {"gym": gym_table, "defaults": defaults_table}.items():
        block = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        figures = table(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))
        text, count = block.subn(
            lambda match, figures=figures: f"{match[1]}\n{figures}\n\n{match[2]}", text
        )
        if count != 1:
            raise ValueError(f"{page} must have one block `measured: {name}`, but has {count}")
    page.write_text(text, encoding="utf-8")


def pages(measured: Mapping[str, Mapping[str, Any]]) -> dict[Path, str]:
    """Return what each generated file should hold."""
    guide = DOCS / "environments.md"
    text, table = guide.read_text(encoding="utf-8"), environments_table()
    filled, count = TABLE.subn(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"{guide} must have one `<!-- generated: envs -->` block, but has {count}")
    return {
        DOCS / "configuration.md": configuration_page(),
        DOCS / "ocean.md": ocean_page(measured),
        guide: filled,
    }


def stale_pages() -> list[Path]:
    """Return the generated files whose text is not what the code says, measured columns aside."""
    return [
        path
        for path, text in pages({}).items()
        if not path.exists()
        or _without_measured(path.read_text(encoding="utf-8")) != _without_measured(text)
    ]


def read_measured() -> dict[str, dict[str, Any]]:
    """Return the measured figures by env, none where nobody has measured."""
    path = RESULTS / "ocean.json"
    if not path.exists():
        return {}
    figures: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return figures


def draw(name: str, path: Path) -> None:
    """Write a picture of env `name` after some steps of random play from a fixed seed."""
    from pufferlib.cli.pictures import write_png

    with make(name, num_envs=1, num_workers=1) as vecenv:
        vecenv.reset(seed=7)
        space, layout = vecenv.action_space, action_layout(vecenv.action_space)
        space.seed(7)
        rows = np.zeros((vecenv.num_agents, *layout.shape), layout.dtype)
        for _ in range(PICTURE_STEPS.get(name, PICTURE_STEPS_ELSE)):
            for slot in range(vecenv.num_agents):
                flatten_action(layout, space.sample(), rows[slot, ...])
            vecenv.step(rows)
        write_png(path, vecenv.render(0))


def _facts(info: NativeInfo) -> list[str]:
    metrics = {metric.name: metric.doc for metric in info.metrics}
    with make(info.name, num_envs=1, num_workers=1) as vecenv:
        return [
            info.name,
            info.group,
            info.doc,
            _observations(vecenv),
            _actions(vecenv),
            str(vecenv.agents_per_env),
            metrics.get("score", ""),
            metrics.get("perf", ""),
        ]


def _observations(vecenv: VectorEnv) -> str:
    space = vecenv.observation_space
    return f"{space.dtype} {' x '.join(map(str, space.shape or ()))}"


def _actions(vecenv: VectorEnv) -> str:
    text = str(vecenv.action_space).replace(", float32)", ")")
    return f"{text}, masked" if vecenv.action_masks is not None else text


def _figures(row: Mapping[str, Any]) -> list[str]:
    """Return the measured cells; empty where a figure is missing."""
    speed, perf, steps = row.get("sps_1core"), row.get("perf"), row.get("steps")
    seeds = row.get("seeds")
    return [
        "" if speed is None else f"{speed / 1e6:.3g}M",
        "" if perf is None else f"{perf:.2f} ({seeds} seed{'' if seeds == 1 else 's'})",
        "" if steps is None else f"{steps / 1e6:.3g}M steps, {row['seconds']:.0f} s",
    ]


def _variants(measured: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the table of what was measured with other memories; none where nothing was."""
    names = [name for name in measured if "/" in name]
    if not names:
        return []
    # the environment's own row is the memory that its ini asks for
    envs = sorted({name.split("/")[0] for name in names})
    rows = []
    for env in envs:
        own = config.load(env).policy.recurrent
        shown = {own: measured.get(env, {})}
        shown |= {
            name.split("/")[1]: measured[name] for name in names if name.startswith(f"{env}/")
        }
        rows += [[env, memory, *_figures(row)[1:]] for memory, row in shown.items()]
    return [
        "",
        MEASURED_BEGIN,
        "",
        "Where memory is needed, each kind of it (`--policy.recurrent`) and none:",
        "",
        *_table(("env", "memory", *MEASURED[1:]), rows),
        "",
        MEASURED_END,
    ]


def _without_measured(text: str) -> str:
    """Cut the cells behind the facts off every table row; other tables are narrower than that.

    A part between the marks of what is measured goes as a whole.
    """
    text = re.sub(f"\n{MEASURED_BEGIN}.*?{MEASURED_END}\n", "", text, flags=re.DOTALL)
    lines = []
    for line in text.splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if line.startswith("|") and len(cells) > len(FACTS) + 2:
            line = "|".join(cells[: len(FACTS) + 1]) + "|"
        lines.append(line)
    return "\n".join(lines)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [list(headings), ["---"] * len(headings), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]


def _range(choices: Sequence[str], low: float, high: float) -> str:
    return ", ".join(choices) or f"{low:g} to {high:g}"


def _spelled(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, bool):
        return "true" if default else "false"
    return f"{default:_}" if isinstance(default, int) and default >= 100_000 else str(default)


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(description="write the generated parts of the docs")
    parser.add_argument("--check", action="store_true", help="only tell what is out of date")
    parser.add_argument("--redraw", action="store_true", help="draw all pictures anew")
    options = parser.parse_args()
    if options.check:
        stale = stale_pages()
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run python scripts/generate_docs.py")
        return 1 if stale else 0
    for path, text in pages(read_measured()).items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    write_measured_tables()
    for name in infos():
        picture = DOCS / "images" / f"{name}.png"
        if options.redraw or not picture.exists():
            picture.parent.mkdir(parents=True, exist_ok=True)
            draw(name, picture)
            print(f"drew {picture.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
