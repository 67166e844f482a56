"""Losses, and what they are made of: tensors in, tensors out; no config, no module, no state."""

from unida.losses.all_in_one import all_in_one
from unida.losses.contrastive import info_nce, soft_contrastive, squared_distances, t_kernel
from unida.losses.dance import entropy_separation, neighbourhood_clustering
from unida.losses.dcc import class_discrepancy, memory_contrast, memory_weight, moved_centres
from unida.losses.energy import energy, energy_margin, mixed_unknowns, slot_entropy
from unida.losses.entropy import open_entropy
from unida.losses.evidential import (
    away_from_threshold,
    dirichlet,
    evidential,
    misleading_evidence,
    uncertainty,
)
from unida.losses.glc import (
    global_labels,
    neighbours_say,
    search_coefficient,
    smoothed_cross_entropy,
    to_targets,
)
from unida.losses.multi_sample import memory_pairs, multi_sample_contrast, mutual_neighbours, unseen
from unida.losses.one_vs_all import one_vs_all
from unida.losses.uan import (
    batch_normalised,
    domain_loss,
    normalised_entropy,
    source_weight,
    target_weight,
)
from unida.ops.clustering import kmeans
from unida.ops.consensus import matching_pairs, search_centres
from unida.ops.mosaics import (
    assignment_entropy,
    draw_mosaics,
    make_mosaics,
    unused_words,
    word_histogram,
    word_logits,
)
from unida.ops.random_walk import (
    anchor_pairs,
    round_trip,
    subgraph_contrast,
    subgraphs,
    transition,
    walk,
)
from unida.ops.transport import (
    adaptive_filling,
    normalised_plan,
    pseudo_labels,
    sinkhorn,
    unbalanced_transport,
)
from unida.ops.uncertainty import certainty, class_weights, transferability

__all__ = [
    "adaptive_filling",
    "all_in_one",
    "anchor_pairs",
    "assignment_entropy",
    "away_from_threshold",
    "batch_normalised",
    "certainty",
    "class_discrepancy",
    "class_weights",
    "dirichlet",
    "domain_loss",
    "draw_mosaics",
    "energy",
    "energy_margin",
    "entropy_separation",
    "evidential",
    "global_labels",
    "info_nce",
    "kmeans",
    "make_mosaics",
    "matching_pairs",
    "memory_contrast",
    "memory_pairs",
    "memory_weight",
    "misleading_evidence",
    "mixed_unknowns",
    "moved_centres",
    "multi_sample_contrast",
    "mutual_neighbours",
    "neighbourhood_clustering",
    "neighbours_say",
    "normalised_entropy",
    "normalised_plan",
    "one_vs_all",
    "open_entropy",
    "pseudo_labels",
    "round_trip",
    "search_centres",
    "search_coefficient",
    "sinkhorn",
    "slot_entropy",
    "smoothed_cross_entropy",
    "soft_contrastive",
    "source_weight",
    "squared_distances",
    "subgraph_contrast",
    "subgraphs",
    "t_kernel",
    "target_weight",
    "to_targets",
    "transferability",
    "transition",
    "unbalanced_transport",
    "uncertainty",
    "unseen",
    "unused_words",
    "walk",
    "word_histogram",
    "word_logits",
]
