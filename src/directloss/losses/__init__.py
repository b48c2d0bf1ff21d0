"""Losses: ``loss(scores, supervision, structure, ...)``, one a file. ``direct`` is the paper."""
