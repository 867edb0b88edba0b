"""Every form in which Ghost comes, against the inner products of explicit gradients."""

import numpy as np

import lai_core as lai

N_VAL, N_TRAIN = 3, 4


def head(backend, samples):
    return lai.LayerTrace(backend.array(np.zeros((samples, 1))), backend.array(np.zeros((samples, 1))))


def forms(validation, training):
    """Return the kernel, scores of raw traces and of a summary, and those that leave each sample out."""
    summary = sum(lai.summarize(validation, "ghost") for _ in range(2))
    return (
        lai.ghost_kernel(validation, training),
        lai.ghost_scores(validation, training),
        lai.ghost_scores(summary, training),
        lai.ghost_scores(training, training, exclude_self=True),
    )


def check_all_forms(backend, validation, training, left, right, **close):
    """Compare them with what `left right^T` makes of each."""
    kernel, gram = left @ right.T, right @ right.T
    expected = kernel, kernel.sum(0), 2 * kernel.sum(0), gram.sum(0) - np.diag(gram)
    found = backend.program(forms)(lai.Trace(validation), lai.Trace(training))
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(backend.numpy(got), wanted, rtol=1e-9, atol=1e-9)
