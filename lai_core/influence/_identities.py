"""Exact identities about the factors of Ghost and LAI: where their gradients come from, what they cancel."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, Namespace, namespace_of
from lai_core._theory.shapes import conformed


def pre_activation_gradients(activation_gradients: Array, slopes: Array, /) -> Float[Array, "n d_out"]:
    r"""Gradients with respect to a layer's pre-activations from those of its activations.

    Implements :eq:`ghost-pre-activation`: :math:`g = \phi'(s) \odot \partial \ell / \partial \phi(s)`, the
    feedback for which Eq. 3 is an identity. Neglecting the factor :math:`\phi'` is not.

    Parameters
    ----------
    activation_gradients
        `(n, d_out)`, gradient of each sample's loss with respect to the layer's output after its
        activation function.
    slopes
        `(n, d_out)`, the activation function's derivative at the pre-activations.

    Returns
    -------
    array
        `(n, d_out)`, the output gradients of a `LayerTrace`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import identities
    >>> identities.pre_activation_gradients(np.array([[3.0, 5.0]]), np.array([[1.0, 0.0]]))
    array([[3., 0.]])
    """
    _, (gradients, derivatives) = conformed(
        {"activation_gradients": (activation_gradients, "n d_out"), "slopes": (slopes, "n d_out")}
    )
    return gradients * derivatives


def softmax_feedback(
    validation_probabilities: Array,
    validation_labels: Array,
    training_probabilities: Array,
    training_labels: Array,
    /,
) -> Float[Array, "n_val n_train"]:
    r"""Return the last layer's beta under softmax and cross-entropy, from probabilities and labels.

    Implements :eq:`softmax-feedback`:
    :math:`\beta^{(L)}_{zj} = \langle p_z, p_j \rangle - p_z[y_j] - p_j[y_z] + 1[y_z = y_j]`.

    Parameters
    ----------
    validation_probabilities, training_probabilities
        `(n_val, c)` and `(n_train, c)`: softmax of the logits.
    validation_labels, training_labels
        `(n_val,)` and `(n_train,)`, integers below c.

    Returns
    -------
    array
        `(n_val, n_train)`, in [-2, 2]. With two classes it is negative for every pair of different
        labels.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import identities
    >>> even = np.array([[0.5, 0.5]])
    >>> identities.softmax_feedback(even, np.array([0]), even, np.array([1]))
    array([[-0.5]])
    """
    xp, (theirs, ours) = conformed(
        {
            "validation_probabilities": (validation_probabilities, "n_val c"),
            "training_probabilities": (training_probabilities, "n_train c"),
        }
    )
    namespace_of({"validation_probabilities": theirs, "validation_labels": validation_labels})
    _check_labels(xp, "validation_labels", validation_labels, int(theirs.shape[0]))
    namespace_of({"training_probabilities": ours, "training_labels": training_labels})
    _check_labels(xp, "training_labels", training_labels, int(ours.shape[0]))
    agreement = xp.astype(validation_labels[:, None] == training_labels[None, :], theirs.dtype)
    return (
        xp.matmul(theirs, xp.matrix_transpose(ours))
        - xp.take(theirs, training_labels, axis=1)
        - xp.matrix_transpose(xp.take(ours, validation_labels, axis=1))
        + agreement
    )


def self_votes(kernel: Array, /) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Each sample's vote for itself, and the others' votes, when a batch is its own validation set.

    Implements :eq:`self-exclusion`: the score is their sum, and the own vote :math:`|g_j|^2` is never
    negative, so that a sample is dropped exactly if :math:`\sum_{z \ne j} \langle g_z, g_j \rangle <
    -|g_j|^2`.

    Parameters
    ----------
    kernel
        `(n, n)`, of a batch with itself.

    Returns
    -------
    tuple of arrays
        `(n,)` the sample's own vote, the kernel's diagonal; `(n,)` the others', which is the score
        with `exclude_self=True`. Positive helps.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If the kernel is not square.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import identities
    >>> identities.self_votes(np.array([[4.0, -3.0], [-3.0, 9.0]]))  # kept, though its peer opposes it
    (array([4., 9.]), array([-3., -3.]))
    """
    xp, (square,) = conformed({"kernel": (kernel, "n n")})
    own = xp.sum(xp.triu(xp.tril(square)), axis=0)
    others = xp.sum(xp.triu(square, k=1) + xp.tril(square, k=-1), axis=0)
    return own, others


def _check_labels(xp: Namespace, name: str, labels: Array, length: int) -> None:
    if labels.ndim != 1 or labels.shape[0] != length:
        msg = f"{name}: expected shape ({length},), got {tuple(labels.shape)}"
        raise ValueError(msg)
    if not xp.isdtype(labels.dtype, "integral"):
        msg = f"{name}: expected integers, got {labels.dtype}"
        raise TypeError(msg)
