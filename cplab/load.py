"""``cp_load``: from a file or a name to a predictor that is ready to use."""

from __future__ import annotations

import warnings
from pathlib import Path

from cplab.cpus import allowed_cpus
from cplab.errors import BadInputError
from cplab.sources import load_model
from cplab.variant import CodePredictor, get_variant


def cp_load(path_or_name: str | Path, variant: str = "kv_bf16", threads: int | None = None) -> CodePredictor:
    """Load a code predictor.

    Args:
        path_or_name: a checkpoint's folder, a GGUF file, or ``synthetic:0.6b`` and its like.
        variant: an implementation; ``python -m bench list`` names them.
        threads: team size; default: the CPUs that affinity and cgroup allow.

    Raises:
        UnknownModelError, UnreadableModelError: the weights.
        UnknownVariantError, VariantUnavailableError: the implementation.
        BadInputError, ThreadsUnavailableError: the threads.

    Warns:
        RuntimeWarning: more threads than CPUs that this process may use; it works, and is slow.
    """
    chosen = get_variant(variant)
    allowed = allowed_cpus()
    count = allowed if threads is None else threads
    if count < 1:
        raise BadInputError(f"threads is {count}; at least 1 is wanted")
    if count > allowed:
        warnings.warn(
            f"{count} threads on {allowed} CPUs: they will take turns, which is slower than {allowed} threads",
            RuntimeWarning,
            stacklevel=2,
        )
    model = load_model(str(path_or_name))
    model.check_finite()
    return chosen.build(model, count)
