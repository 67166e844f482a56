"""Protocols × methods × seeds → results → the tables and figures of the paper."""
