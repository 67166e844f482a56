"""Novel categories among the images that a model called unknown.

Lives here: clustering algorithms, the number of categories, representatives, suggested names, and
the files categories.csv and categories.json.
Does not live here: the decision what is unknown (`unida.decision`).
"""
