"""The bars of worker processes: figures of `puffer bench vec` beside the wanted ones.

python benchmarks/vec_bars.py
python benchmarks/vec_bars.py --seconds 60 --threads 2      options of `puffer bench vec`
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

from bars import say

# by cost of a step in us; at 0 and 10 the share of PufferLib 3.0 with its best backend
SHARES = {0: 0.06, 10: 0.35, 100: 0.95, 1000: 0.95}
RATIOS = {0: 5.0, 10: 3.0}
TURN_OVER_BARE_US = 40.0  # how much longer than the bare hand-over a turn may take
ASYNC_OVER_SYNC = 1.5
IDLE_CPU = 0.05


class Bar(NamedTuple):
    """A wanted figure and the measured one."""

    what: str
    value: float
    wanted: float
    is_met: bool


def bars_of(result: dict[str, Any]) -> list[Bar]:
    """Return a line for each bar, from the JSON of `puffer bench vec`."""
    bars = []
    for row in result["costs"]:
        for what, value, wanted in (
            ("share of the ideal", row["multiprocessing_share"], SHARES),
            ("times AsyncVectorEnv", row["ratio"], RATIOS),
        ):
            bar = wanted.get(row["cost_us"])
            if bar is not None and value is not None:
                bars.append(Bar(f"{row['cost_us']} us, {what}", value, bar, value >= bar))
    for count in dict.fromkeys(row["num_envs"] for row in result["turns"]):
        over = max(row["over_bare_us"] for row in result["turns"] if row["num_envs"] == count)
        what = f"{count} envs, us of a turn over the bare hand-over, at most"
        bars.append(Bar(what, over, TURN_OVER_BARE_US, over <= TURN_OVER_BARE_US))
    ratio, idle = result["uneven"]["ratio"], result["idle_cpu"]
    bars.append(Bar("async, times sync", ratio, ASYNC_OVER_SYNC, ratio >= ASYNC_OVER_SYNC))
    bars.append(Bar("cpu of a waiting worker, at most", idle, IDLE_CPU, idle <= IDLE_CPU))
    return bars


def main(words: list[str]) -> int:
    """Run the benchmark and print the table; exit code 1 means that a bar was missed."""
    command = [sys.executable, "-m", "pufferlib", "bench", "vec", "--json", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    bars = bars_of(result)
    say(f"load {result['load']:.1f}")
    for bar in bars:
        met = "met" if bar.is_met else "MISSED"
        say(f"{bar.what:<58}{bar.value:>9.3g}{bar.wanted:>7g}  {met}")
    return 0 if all(bar.is_met for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
