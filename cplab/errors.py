"""The lab's errors. Each message is one line: what, where, and what to do."""

from __future__ import annotations


class CplabError(Exception):
    """Base of every error that the lab raises on purpose; command lines print it as one line and exit with 1."""

    def __init__(self, message: str = "") -> None:
        super().__init__(" ".join(str(message).split()))  # names out of foreign files may hold line breaks


class UnknownModelError(CplabError):
    """A model was asked for that is neither a file nor a name the lab knows."""


class UnreadableModelError(CplabError):
    """A model file is missing, truncated, foreign, incomplete, or holds what it should not."""


class UnknownVariantError(CplabError):
    """No variant of that name is registered."""


class VariantUnavailableError(CplabError):
    """A variant needs something that is not installed; the message holds the command that installs it."""


class EngineError(CplabError):
    """Another engine that a variant runs on refused or failed; the message holds what it said."""


class BadInputError(CplabError):
    """An argument of ``predict`` or ``cp_load`` has the wrong shape, type or value."""


class UnpackableError(BadInputError):
    """A weight that a format cannot hold at all, or rows that are not made of its blocks."""


class RowsNotInBlocksError(UnpackableError):
    """Rows that are not made of a format's blocks: no model of these widths can be held so, whatever its weights."""


class ThreadsUnavailableError(CplabError):
    """More threads were asked for than the thread pool of this process can have."""


class ForkedTeamError(CplabError):
    """The thread team was used before a fork and cannot be used after it in the child."""


class NonFiniteLogitsError(CplabError):
    """A logit is NaN or infinite; a code chosen from it would be noise.

    Attributes:
        frame: index of the frame within the call.
        pass_index: pass within the frame, 0-based (pass 0 gives CB1).
    """

    def __init__(self, frame: int, pass_index: int, detail: str = "") -> None:
        super().__init__(f"non-finite logits in frame {frame}, pass {pass_index}{': ' + detail if detail else ''}")
        self.frame = frame
        self.pass_index = pass_index


class NonFiniteActivationError(NonFiniteLogitsError):
    """An activation that is to be quantised is NaN or infinite: its block has no scale.

    Attributes:
        matrix: name of the matrix whose input it is, or "".
    """

    def __init__(self, frame: int, pass_index: int, matrix: str = "") -> None:
        CplabError.__init__(
            self,
            f"non-finite activation in frame {frame}, pass {pass_index}{': input of ' + matrix if matrix else ''}",
        )
        self.frame, self.pass_index, self.matrix = frame, pass_index, matrix


class CacheError(CplabError):
    """The cache folder cannot be written."""


class OutputRefusedError(CplabError):
    """A file that was asked for cannot be written where it was asked for."""


class GoldenError(CplabError):
    """A golden file is missing, unreadable, or belongs to other weights."""
