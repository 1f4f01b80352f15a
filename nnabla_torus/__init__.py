"""2D-torus all-reduce and batch-size control on Sony's Neural Network Libraries (Mikami et al., arXiv 1811.05233)."""

__version__ = "0.1.0"
