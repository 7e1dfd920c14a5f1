"""Where a model comes from: a checkpoint's folder, a GGUF file, or a seed."""

from __future__ import annotations

from pathlib import Path

from cplab.errors import UnknownModelError, UnreadableModelError
from cplab.model import Model


def load_model(path_or_name: str) -> Model:
    """A model from a checkpoint's folder or a GGUF file, or from a seed where the name starts with ``synthetic:``.

    Raises:
        UnknownModelError: no such file or name.
        UnreadableModelError: the folder or file does not hold a whole code predictor.
    """
    from cplab.sources import checkpoint, gguf, synthetic

    if path_or_name.startswith(synthetic.PREFIX):
        return synthetic.load(path_or_name)
    path = Path(path_or_name).expanduser()
    if not path.exists():
        known = ", ".join(synthetic.names())
        raise UnknownModelError(
            f"{path_or_name}: no such file; a checkpoint's folder, a GGUF file or one of {known} is wanted"
        )
    if path.is_dir():
        return checkpoint.read(path)
    if path.suffix == ".safetensors":
        raise UnreadableModelError(f"{path}: config.json is wanted too; give the folder, {path.parent}")
    return gguf.read(path)


__all__ = ["load_model"]
