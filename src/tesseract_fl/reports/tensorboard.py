"""Event files for TensorBoard: what a round has one number of, and how weights and reputations spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl.data.base import needs_extra
from tesseract_fl.reports.journal import suspected

OnRound = Callable[[dict[str, Any], float], None]
OnStart = Callable[[str, int, int], OnRound]

# where TensorBoard shows a number of a round's record
_GROUPS = {
    "accuracy": "quality/test accuracy",
    "test_loss": "quality/test loss",
    "train_loss": "quality/training loss",
    "attack_success": "attack/success",
    "malicious_weight": "attack/weight of the malicious clients",
    "true_positive_rate": "detection/malicious clients caught",
    "false_positive_rate": "detection/honest clients caught",
    "auroc": "detection/AUROC",
    "flip_score_low": "flip-score/lowest rewarded",
    "flip_score_high": "flip-score/highest rewarded",
}


@contextmanager
def recording(directory: Path, on_start: OnStart) -> Iterator[OnStart]:
    """Record every run that is started inside, beside what `on_start` does; a resumed one replaces what it repeats."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise needs_extra("tensorboard", "tensorboard") from error

    with ExitStack() as writers:

        def start(title: str, total: int, done: int) -> OnRound:
            tell = on_start(title, total, done)
            writer = SummaryWriter(str(directory), purge_step=done + 1, flush_secs=5)
            writers.callback(writer.close)

            def record(happened: dict[str, Any], seconds: float) -> None:
                write_round(writer, happened, seconds)
                tell(happened, seconds)

            return record

        yield start


def write_round(writer: Any, record: Mapping[str, Any], seconds: float) -> None:
    number = record["round"]
    for name, tag in _GROUPS.items():
        if record.get(name) is not None:
            writer.add_scalar(tag, record[name], number)
    writer.add_scalar("round/seconds", seconds, number)
    writer.add_scalar("round/suspected clients", suspected(record), number)
    writer.add_scalar("round/turned away", len(record.get("rejected", ())), number)
    for name in ("weights", "share", "reputation"):
        if record.get(name):
            writer.add_histogram(f"clients/{name}", np.array(record[name]), number)
