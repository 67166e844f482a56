"""Building blocks of methods with no loss in them: tensors in, tensors out.

Lives here: clustering (k-means, consensus, pseudo labels), nearest neighbours, optimal transport,
random walks, kernels, uncertainty and transferability scores, mosaics and mixtures, chunked tables.
Does not live here: losses (`unida.losses`, which may import from here), modules, state. Each file
is imported by its own name, as in `from unida.ops.kmeans import kmeans`.
"""
