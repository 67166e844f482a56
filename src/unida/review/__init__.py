"""A reviewer's names and corrections, and the run that learns from them.

Lives here: the review server, the stored corrections, `adapt --continue`.
Does not live here: the page itself (`unida.report`).
"""
