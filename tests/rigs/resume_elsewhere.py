"""For torchrun: load a checkpoint of a run with other slots, train, and save again.

resume_elsewhere.py CHECKPOINT OUT ENVS_PER_PROCESS KIND
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import distributed_run


def main(path: str, out: str, num_envs: str, kind: str) -> None:
    distributed_run.SLOTS = int(num_envs) * distributed_run.join_world("cpu").size
    trainer = distributed_run.trainer_of(kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.load_checkpoint(path)
    loaded = trainer.iteration, trainer.steps
    trainer.evaluate()
    trainer.train()
    trainer.save_checkpoint(f"{out}.safetensors")
    weights = [part.double().sum().item() for part in trainer.policy.parameters()]
    said = [str(each.message) for each in caught]
    result = {"said": said, "loaded": loaded, "weights": weights}
    Path(f"{out}.{trainer.world.rank}").write_text(json.dumps(result))
    trainer.env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
