"""Where a model comes from: a GGUF file or a seed."""

from __future__ import annotations

from pathlib import Path

from cplab.errors import UnknownModelError
from cplab.model import Model


def load_model(path_or_name: str) -> Model:
    """A model from a GGUF file, or made from a seed where the name starts with ``synthetic:``.

    Raises:
        UnknownModelError: no such file or name.
        UnreadableModelError: the file is not a whole code predictor.
    """
    from cplab.sources import gguf, synthetic

    if path_or_name.startswith(synthetic.PREFIX):
        return synthetic.load(path_or_name)
    path = Path(path_or_name).expanduser()
    if not path.exists():
        known = ", ".join(synthetic.names())
        raise UnknownModelError(f"{path_or_name}: no such file; a GGUF file's path or one of {known} is wanted")
    return gguf.read(path)


__all__ = ["load_model"]
