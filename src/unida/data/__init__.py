"""Folders, lists, CSV files and arrays → samples → pixels or embeddings → batches of indices.

Lives here: readers, decoding, the pixel and embedding caches, samplers, augmentations.
Does not live here: benchmark data sets (`unida.protocols`), networks, losses.
"""
