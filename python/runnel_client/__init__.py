"""runnel from Python: bundles, the conversion of checkpoints, and calls to a server."""
