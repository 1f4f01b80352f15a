"""Networks as functions of an nnabla variable; their parameters live in the scope in which they are called."""
