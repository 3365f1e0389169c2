"""What one silo computes in a round: a local update per algorithm."""
