"""Images → samples → pixels → batches of indices."""
