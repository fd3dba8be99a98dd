"""The process of a trial without torch: logs as a run does, in a tenth of a second.

`python fake_trial.py train NAME --config INI`. The score is that of the learning rate in the ini;
`--env.fault` there makes it misbehave: diverge, crash, silent, usage, bug, full, dies-training, and
dies-ending-N by signal N. With `--env.gate N` it waits after N of its LINES until someone makes the
file GATE in its folder.
"""

from __future__ import annotations

import configparser
import fcntl
import json
import math
import os
import signal
import struct
import sys
import threading
import time
from pathlib import Path

from waiting import wait_until

LINES = 10
GATE = "gate"


def end_with_driver() -> None:
    os.read(0, 1)
    os._exit(143)


def main() -> None:
    size = struct.unpack("<Q", sys.stdin.buffer.read(8))[0]
    sys.stdin.buffer.read(size)
    threading.Thread(target=end_with_driver, daemon=True).start()
    ini = configparser.ConfigParser()
    ini.read(sys.argv[sys.argv.index("--config") + 1])
    train = ini["train"]
    env = dict(ini["env"]) if "env" in ini else {}
    fault = env.get("fault", "")
    rate = float(train["learning_rate"])
    if fault == "usage":
        sys.exit("puffer: Unknown param of `fake` `fault`.")
    folder = Path(train["run_dir"]) / "fake-20260101-000000"
    folder.mkdir(parents=True)
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with (folder / "metrics.jsonl").open("a", buffering=1) as log:
        for line in range(1, LINES + 1):
            time.sleep(float(env.get("pause", "0.01")))
            if fault == "crash" and line > 3:
                os.abort()
            if fault == "full" and line > 3:
                sys.exit(f"puffer: cannot write to {folder}: No space left on device")
            if fault == "bug" and line > 3:
                sys.stderr.write("puffer: a warning\n")
                raise LookupError("a mistake of ours")
            if fault == "diverge" and line > 3:
                sys.stderr.write("puffer: `loss` must be finite, but is nan\n")
                sys.exit(2)
            score = 100 * math.exp(-((math.log10(rate) + 3) ** 2)) * line / LINES
            record = {"step": line, "steps": line, "total_steps": LINES, "uptime": line / 10}
            if fault != "silent":
                record["mean_reward"] = score
            log.write(json.dumps({**record, "episodes": 3}) + "\n")
            if line == int(env.get("gate", 0)):
                wait_until((folder.parent / GATE).exists)
    if fault == "dies-training":
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / "latest.safetensors").write_bytes(b"")
    if fault.startswith("dies-ending-"):
        os.kill(os.getpid(), int(fault.rpartition("-")[2]))


if __name__ == "__main__":
    main()
