"""What scores a training sample: kernels, scores, validation summaries, and what follows from them."""
