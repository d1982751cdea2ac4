"""Settings of shared keys: several heads may share a key, and values may share its linear map."""

from pydantic import Field

from linbench.common.errors import UserError
from linbench.common.settings import ABSENT
from linbench.models.blocks.heads import HeadSettings, head_dims


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
    share_kv: bool = Field(
        False,
        description="whether the linear map of k makes v, too; convolution and norm stay apart",
        json_schema_extra={ABSENT: False},
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


def shares_values(settings: SharedKeySettings, d_model: int, key_heads: int) -> bool:
    """Return whether one linear map makes both keys and values.

    Raises:
        UserError: if it should, and keys and values differ in number or width.
    """
    key_dim, value_dim = head_dims(settings, d_model)
    if settings.share_kv and (key_heads, key_dim) != (settings.heads, value_dim):
        raise UserError(
            "model.share_kv = true needs values as many and as wide as keys; here keys are"
            f" {key_heads} x {key_dim} (heads x width) and values {settings.heads} x {value_dim}. Choose"
            " expand_v = expand_k, and a key for each head."
        )
    return settings.share_kv
