"""Results → the paper's figures.

Lives here: the rows of each figure (`plot_data`), which runs it shows, how it is drawn and styled.
Every number that a figure shows is in the CSV beside it.
"""
