"""What a person says of a run: the page that saves it, and the next run that learns from it."""
