"""What a sweep measures where nobody named variants: those that this model could be served by, and why not the others.

A gate and six rounds of a variant take half a minute. A variant for which the model itself says how it ends is left
out, told with the reason, and measured as soon as it is named:

* as stored, where every matrix of the model is in one format: that format has its own variant;
* weights wider than the model stores them: the same bits come of fewer bytes;
* drafts by later heads of a seeded model: its heads have learnt nothing of each other;
* drafts by a second copy of the model: how often its own rounding lets them hold is known from its fidelity.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cplab.formats import STORED
from cplab.model import Model, is_streamed
from cplab.sources import load_model, synthetic
from cplab.variant import HEADS, Variant

_NAME_IT = "name it with --variants to measure it"


def default_variants(known: list[Variant], model: str, files: Sequence[Path] = ()) -> tuple[list[Variant], list[str]]:
    """Which of the known variants a sweep of a model takes by itself, and a line for each of the others.

    Args:
        known: all of them.
        model: a path or a name.
        files: whose variants are wanted, whatever they are: they were given.

    Raises:
        cplab.errors.CplabError: there is no such model, or it cannot be read.
    """
    opened = load_model(model)
    given, from_file = {path.resolve() for path in files}, Path(model).expanduser().is_file()
    kept, left_out = [], []
    for one in known:
        reason = "" if Path(one.source).resolve() in given else _reason(one, opened, from_file)
        if reason:
            left_out.append(f"{one.name}: {reason} ({_NAME_IT})")
        else:
            kept.append(one)
    return kept, left_out


def _reason(variant: Variant, model: Model, from_file: bool) -> str:
    """Why a variant is left out, or ""."""
    if variant.format == STORED and not from_file:  # only a file may hold matrices in several formats
        return "the model is in one format, which has its own variant"
    stored = {tensor.format.name for name, tensor in model.tensors.items() if is_streamed(name)}
    if variant.format == "f32" and not variant.extra and "f32" not in stored:
        return "no weight of the model is stored in float32: the same bits come of fewer bytes"
    if variant.drafter == HEADS and model.synthetic and not synthetic.predicts_ahead(model.name):
        return "heads of seeded weights have learnt nothing of later codes"
    if variant.drafter not in ("", HEADS):
        return f"drafts of a second copy hold as often as its rounding lets them, which kv_{variant.drafter} tells"
    return ""
