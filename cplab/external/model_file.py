"""The GGUF file that an engine of somebody's is given."""

from __future__ import annotations

from pathlib import Path

from cplab.cachedir import cache_dir, writing_to_cache
from cplab.errors import BadInputError
from cplab.export import model_part
from cplab.external.naming import STORED
from cplab.model import Model
from cplab.sources.synthetic import PREFIX

#: Part of the file's name: a change of what is written gets a new one.
_VERSION = 1


def engine_file(model: Model, matrices: str) -> tuple[Path, str]:
    """The file of a model and what it is, in a few words.

    Args:
        model: may have been rounded to a format, and then is another than its name says.
        matrices: `STORED`, or a format.

    Returns:
        The user's own GGUF file where ``model`` is what it holds and nothing else is wanted; else one of the lab's own
        dialect in the cache, written once.

    Raises:
        BadInputError: a value beyond the range of the format.
        CacheError: the cache cannot be written.
    """
    given = Path(model.name).expanduser()
    if matrices == STORED and not model.name.startswith(PREFIX) and given.is_file():
        return given.resolve(), "the user's file"
    kind = None if matrices == STORED else matrices
    path = cache_dir() / "external" / f"{model.digest()}-{matrices}-{_VERSION}.gguf"
    if not path.exists():
        try:
            with writing_to_cache(path):
                model_part(model, path, model.name, kind).write()
        except BadInputError as error:
            raise BadInputError(f"{model.name} as {matrices}: {error}") from error
    return path, f"a GGUF of the lab's dialect, matrices {'as stored' if kind is None else kind.upper()}"
