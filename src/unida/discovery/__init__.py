"""Novel categories among the images that a model called unknown.

Lives here: grouping algorithms, the number of groups, representatives, names.
Does not live here: the decision what is unknown (`unida.decision`).
"""
