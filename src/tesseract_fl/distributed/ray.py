"""Shards as Ray actors, in other processes or on other machines."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tesseract_fl.distributed.shard import Shard, cut
from tesseract_fl.types import ConfigError, ShardError, TesseractError


class RayShards:
    """One actor for each block of columns, spread over the cluster that `ray.init` has joined.

    A worker that dies or does not answer within `timeout` seconds is a ShardError: its rows and its columns of the
    state are gone, so it is not restarted with nothing in its hands. Make new shards, `scatter` the last checkpoint,
    and send the round's rows again. `options` go to the actors, for example num_cpus.
    """

    def __init__(self, d: int, workers: int, *, timeout: float = 600.0, **options: Any) -> None:
        self.d, self.blocks, self.timeout = d, cut(d, workers), timeout
        self._ray = _ray()
        remote = self._ray.remote(Shard)
        placed = {"scheduling_strategy": "SPREAD", "max_restarts": 0, "max_task_retries": 0, **options}
        self.actors = [remote.options(**placed).remote(block, d) for block in self.blocks]

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        asked = [getattr(actor, method).remote(*own) for actor, own in zip(self.actors, arguments, strict=True)]
        return [self._answer(number, method, reference) for number, reference in enumerate(asked)]

    def close(self) -> None:
        for actor in self.actors:
            self._ray.kill(actor)

    def _answer(self, number: int, method: str, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=self.timeout)
        except errors.RayTaskError as error:
            if isinstance(error.cause, TesseractError):
                raise error.cause from error
            raise
        except errors.GetTimeoutError as error:
            raise self._lost(number, method, f"did not answer within {self.timeout:g} s") from error
        except errors.RayActorError as error:
            raise self._lost(number, method, "died") from error

    def _lost(self, number: int, method: str, how: str) -> ShardError:
        block = self.blocks[number]
        return ShardError(
            f"the worker of columns {block.start}:{block.stop}, shard {number} of {len(self.blocks)}, {how} "
            f"at {method!r}; the round was not aggregated and the state is as before. "
            "Make new shards, scatter the last checkpoint and send the rows again"
        )


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise ConfigError("RayShards needs Ray: pip install 'tesseract-fl[ray]'") from error
