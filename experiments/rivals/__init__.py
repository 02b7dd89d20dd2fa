"""Compact versions of methods without a package that works: NAM, IMN, LocalGLMnet.

Written from the papers. Each module holds the network, its recommended settings and
one adapter, `fit`, of the kind that `benchmarks/rivals.py` collects.
"""
