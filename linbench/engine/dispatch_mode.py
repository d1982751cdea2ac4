"""The base of modes that watch torch's operations."""

from torch.utils._python_dispatch import TorchDispatchMode


class WatchingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of torch that does not load torch's compiler when it is first used, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch would otherwise load its compiler to keep it out of the mode."""
        return False
