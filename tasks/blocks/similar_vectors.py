"""Vectors with given cosines: alike within a cluster, at right angles across clusters."""

from math import sqrt
from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import normalize

from linbench.tasks.blocks.rotations import orthonormal
from linbench.tasks.random import Stream

__all__ = ["SimilarVectors", "around", "similar_vectors"]


class SimilarVectors(NamedTuple):
    """Unit vectors [B, N, D] in float64, and the number of the cluster of each [B, N]."""

    vectors: Tensor
    cluster: Tensor


def similar_vectors(stream: Stream, count: int, dim: int, *, cosine: float, cluster: int) -> SimilarVectors:
    """Draw unit vectors in clusters, all in random order.

    Two vectors of a cluster have the cosine, and others 0, exactly where count <= dim: with G the Gram matrix
    they are the rows of [G^(1/2), 0] Q, where Q is a uniform (Haar) rotation or reflection of each example.
    Nothing but the Gram matrix is the same in two examples, so no linear map makes the vectors less alike.
    Where count > dim, each cluster has a random direction, and its vectors are drawn `around` it. Cosines
    are then as they should be on average, and differ from that by about 1 / sqrt(dim).

    Args:
        stream: one for each example.
        count: number of vectors, a multiple of `cluster`.
        dim: number of dimensions; at least 3 where count > dim, since in 2 only two directions are at right
            angles to a centre.
        cosine: from 0 to less than 1.
        cluster: number of vectors in a cluster.
    """
    if count <= dim:
        axes = orthonormal(_normals(stream.child("axes"), count, dim))
        # the square root of a cluster's part (1 - cosine) I + cosine 1 1^T of G
        own = sqrt(1 - cosine)
        shared = (sqrt(1 + (cluster - 1) * cosine) - own) / cluster
        sums = axes.view(-1, count // cluster, cluster, dim).sum(dim=2)
        vectors = own * axes + shared * sums.repeat_interleave(cluster, dim=1)
    else:
        centres = normalize(_normals(stream.child("centres"), count // cluster, dim), dim=2)
        apart = _normals(stream.child("own"), count, dim)
        vectors = around(centres.repeat_interleave(cluster, dim=1), apart, cosine)
    order = stream.child("order").shuffle(count)
    return SimilarVectors(vectors.take_along_dim(order[:, :, None], dim=1), order // cluster)


def around(centres: Tensor, vectors: Tensor, cosine: float) -> Tensor:
    """Return sqrt(cosine) centre + sqrt(1 - cosine) own, with own of length 1 and at right angles to it.

    Args:
        centres: unit vectors [..., dim].
        vectors: what own is made of, by leaving out the part along the centre [..., dim].
        cosine: of two vectors around one centre, on average.
    """
    own = normalize(vectors - (vectors * centres).sum(dim=-1, keepdim=True) * centres, dim=-1)
    return sqrt(cosine) * centres + sqrt(1 - cosine) * own


def _normals(stream: Stream, count: int, dim: int) -> Tensor:
    """Return draws [B, count, dim] from N(0, 1), in float64."""
    return stream.normals(count * dim).double().view(-1, count, dim)
