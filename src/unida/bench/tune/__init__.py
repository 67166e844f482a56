"""Settings searched without target labels."""
