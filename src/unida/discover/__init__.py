"""Novel categories: what is there among the images that a model called unknown."""
