"""Measuring the all-reduce. No nnabla here, so that many ranks start fast."""
