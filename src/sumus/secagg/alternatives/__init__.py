"""Aggregators to compare the protocol with: the paper's trusted ideal, pairwise cancelling noise,
and relayed groups.
"""
