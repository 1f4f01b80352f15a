"""Where samples come from: the stream that says which sample comes next, and the sources that hold them."""
