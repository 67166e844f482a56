"""Results → the paper's figures, each with the rows it was drawn from."""
