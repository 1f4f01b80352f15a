"""Training: the loop, what watches and steers it, and what it leaves behind."""
