"""Building blocks of methods with no loss in them: tensors in, tensors out.

Lives here: k-means, consensus, optimal transport, random walks, mosaics, chunked top-k.
Does not live here: losses (`unida.losses`), modules, state.
"""
