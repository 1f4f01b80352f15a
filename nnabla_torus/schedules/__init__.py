"""What a run does when: pure functions of the samples seen, for rate and momentum, and for the batch size."""
