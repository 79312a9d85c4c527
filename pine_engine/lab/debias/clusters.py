"""Clusters of document orders by the hidden state of the last prompt token (representative decoding).

Source: Zhang et al. 2026, "Stable-RAG", zqc1023/Stable-RAG 2ba3c3d, without the training that follows there.
The authors begin k-means at random; here it begins with the order nearest to the mean, so that equal states
give equal clusters.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pine_engine.reprs import short_repr

NUM_COMPONENTS = 30  # principal components of the states that are compared
SIGMA = 0.1  # scale of the cosine distance
MAX_CLUSTERS = 20
MAX_ROUNDS = 300  # of k-means
ROUNDING = 1e-9  # relative difference of equal distances, such as those of two orders in one cluster

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Clusters:
    """Clusters of the orders in which a prompt was run; the largest cluster is 0.

    Attributes:
        orders: Orders, sorted by the contents of their documents; in order[p] is the document at place p.
        points: First two principal components of the hidden state of each order, without a unit.
        labels: Cluster of each order.
        representatives: Index of the order nearest to the center of each cluster.
        answers: Answer in the representative order of each cluster; empty before there are some.
    """

    orders: tuple[tuple[int, ...], ...]
    points: tuple[tuple[float, float], ...]
    labels: tuple[int, ...]
    representatives: tuple[int, ...]
    answers: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of orders in each cluster."""
        return tuple(map(self.labels.count, range(len(self.representatives))))


def cluster_states(orders: list[tuple[int, ...]], states: FloatArray) -> Clusters:
    """Cluster orders by their states, and find the order nearest to the center of each cluster.

    Of clusters with the same size, and of orders with the same distance, the first order decides.

    Args:
        orders: Orders, which are sorted independently of the order in which the documents were given.
        states: Hidden states, (O, hidden size) in float64.
    """
    left, values, _ = np.linalg.svd(states - states.mean(0), full_matrices=False)
    points: FloatArray = (left * values)[:, :NUM_COMPONENTS]  # along the first principal components
    labels, centers = _k_means(points, _num_clusters(points))
    distances = np.linalg.norm(points - centers[labels], axis=1)
    found = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        is_nearest = distances[members] <= distances[members].min() * (1 + ROUNDING)
        found.append((-len(members), int(members[is_nearest.argmax()]), label))
    ranks = {label: rank for rank, (*_, label) in enumerate(sorted(found))}
    shown = np.pad(points, ((0, 0), (0, 2)))[:, :2]  # a single component for two orders
    return Clusters(
        orders=tuple(orders),
        points=tuple((float(x), float(y)) for x, y in shown),
        labels=tuple(ranks[label] for label in labels),
        representatives=tuple(nearest for _, nearest, _ in sorted(found)),
    )


def _num_clusters(points: FloatArray) -> int:
    """Return the number before the largest gap of the Laplacian's eigenvalues, at least 2.

    The similarity of two points is exp(-cosine distance / SIGMA).
    """
    if len(points) < 2:
        return 1
    units = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), np.finfo(float).tiny)
    similarity = np.exp((units @ units.T - 1) / SIGMA)
    roots = np.sqrt(similarity.sum(1))
    laplacian = np.eye(len(points)) - similarity / np.outer(roots, roots)
    gaps = np.diff(np.linalg.eigvalsh(laplacian)[: min(MAX_CLUSTERS, len(points) - 1) + 1])
    return max(2, int(gaps.argmax()) + 1)


def _k_means(points: FloatArray, count: int) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the cluster of each point and the centers, of which there are no more than distinct points.

    The first center is the point nearest to the mean, each other the point farthest from those before.
    """
    chosen = [int(np.linalg.norm(points - points.mean(0), axis=1).argmin())]
    while len(chosen) < count:
        distances = np.linalg.norm(points[:, None] - points[chosen], axis=-1).min(1)
        if not distances.max() > 0:
            break
        chosen.append(int(distances.argmax()))
    centers = points[chosen]
    labels = np.full(len(points), -1)
    for _ in range(MAX_ROUNDS):
        nearest = np.linalg.norm(points[:, None] - centers, axis=-1).argmin(1)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        kept = np.unique(labels)  # a center without points is dropped
        labels = np.searchsorted(kept, labels)
        centers = np.stack([points[labels == label].mean(0) for label in range(len(kept))])
    return labels, centers
