"""Keys that several heads share: how many there are, and which settings say so."""

from pydantic import Field

from linbench.common.errors import UserError
from linbench.common.settings import ABSENT
from linbench.models.blocks.heads import HeadSettings


class SharedKeySettings(HeadSettings):
    """Settings of heads of which several may share a query and a key, as in Qwen3-Next's layers.

    Decays, those of rows too, write strengths and normalisers stay apart for all heads. What acts on queries
    and keys, such as their norms and feature maps, is theirs.
    """

    key_heads: int | None = Field(
        None,
        ge=1,
        description="heads of q and k, each for as many heads of values; null is heads",
        json_schema_extra={ABSENT: None},
    )


def shared_heads(settings: HeadSettings, name: str) -> int:
    """Return how many heads there are of what heads share, by the name of its setting; null is all heads.

    Raises:
        UserError: if heads cannot share them evenly.
    """
    count: int = getattr(settings, name) or settings.heads
    if settings.heads % count:
        raise UserError(
            f"model.{name} = {count} does not divide model.heads = {settings.heads}: each must serve equally"
            " many heads."
        )
    return count
