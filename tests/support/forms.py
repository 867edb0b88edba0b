"""Every form in which Ghost comes, against the inner products of explicit gradients."""

import numpy as np

import lai_core as lai

N_VAL, N_TRAIN = 3, 4


def head(backend, samples):
    return lai.LayerTrace(backend.array(np.zeros((samples, 1))), backend.array(np.zeros((samples, 1))))


def check_all_forms(backend, validation, training, left, right, **close):
    """Compare kernel, scores of raw traces and of a summary, and leave-self-out with `left right^T`."""
    kernel = left @ right.T
    traces = lai.Trace(validation), lai.Trace(training)
    np.testing.assert_allclose(backend.numpy(lai.ghost_kernel(*traces)), kernel, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(backend.numpy(lai.ghost_scores(*traces)), kernel.sum(0), rtol=1e-9, atol=1e-9)
    summary = sum(lai.summarize(traces[0], "ghost") for _ in range(2))
    scores = backend.numpy(lai.ghost_scores(summary, traces[1]))
    np.testing.assert_allclose(scores, 2 * kernel.sum(0), rtol=1e-9, atol=1e-9)
    own = lai.ghost_scores(traces[1], traces[1], exclude_self=True)
    gram = right @ right.T
    np.testing.assert_allclose(backend.numpy(own), gram.sum(0) - np.diag(gram), rtol=1e-9, atol=1e-9)
