"""What plain torch trains is trained to the same parameters, and scored as by autograd, or refused."""

import copy
import functools
from contextlib import nullcontext

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import lai_core as lai
from tests.lai_torch.support import LOSS, data, labels
from tests.support.torch_modules import held, holding

EVERYTHING = functools.partial(lai.keep_top, fraction=1.0)


@holding(lambda table: held(table=table, head=nn.Linear(6, 3)))
def make_words(own, words):
    """Take the mean of its words' rows of a table."""
    rows = own.table(words)
    return own.head(torch.tanh(rows.mean(1) if rows.ndim == 3 else rows))


class Gained(nn.Module):
    """Scales by a frozen gain, which forward writes by a function, without switching gradients off."""

    def __init__(self, write, *, last=False):
        super().__init__()
        self.body, self.head, self.write, self.last = nn.Linear(4, 8), nn.Linear(8, 3), write, last
        self.gain = nn.Parameter(torch.ones(3 if last else 8), requires_grad=False)

    def forward(self, inputs):
        hidden = torch.relu(self.body(inputs))
        self.write(self.gain)
        return self.head(hidden) * self.gain if self.last else self.head(hidden * self.gain)


def decayed(gain):
    gain.mul_(0.9).add_(0.2)


def partly_set(gain):
    gain[0] = 0.5


def clamped(gain):
    gain.clamp_(max=4.0)  # which changes nothing at first


class Checkpointed(nn.Module):
    """Computes its inside again in the backward pass, but for what a policy saves."""

    def __init__(self, policy, *, head):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        inside = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.inside = nn.Sequential(inside, self.head) if head else inside
        self.contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        self.whole = head

    def forward(self, inputs):
        hidden = torch.tanh(self.body(inputs))
        hidden = checkpoint(self.inside, hidden, use_reentrant=False, context_fn=self.contexts)
        return hidden if self.whole else self.head(hidden)


def products_saved(_, function, *args, **options):
    saved = function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


@holding(
    lambda *, behind=False: held(
        body=nn.Linear(4, 8),
        heads=nn.Parameter(torch.randn(5, 3, 8) / 3),
        last=nn.Linear(3, 3) if behind else nn.Identity(),
    )
)
def make_stacked(own, inputs):
    """Average heads whose matrices are stacked, by vmap over them."""
    hidden = torch.tanh(own.body(inputs))
    heads = torch.func.vmap(lambda head: functional.linear(hidden, head))(own.heads)
    return own.last(torch.tanh(heads).mean(0))


@holding(lambda *, last=False: held(body=nn.Linear(4, 8), head=nn.Linear(8, 3), last=last))
def make_ragged(own, inputs):
    """Run samples of several lengths, which their first entry says, as one nested tensor."""
    lengths = inputs[:, 0, 0].long().tolist()
    rows = [row[:length] for row, length in zip(inputs, lengths, strict=True)]
    hidden = torch.tanh(own.body(torch.nested.as_nested_tensor(rows, layout=torch.jagged)))
    hidden = own.head(hidden) if own.last else hidden
    summed = torch.nested.to_padded_tensor(hidden, 0.0).sum(1)
    return summed if own.last else own.head(summed)


class Doubled(nn.Module):
    def forward(self, matrix):
        return 2.0 * matrix.tanh()


def parametrized(register):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    register(model[0])
    register(model[2])
    return model


def doubled(layer):
    parametrize.register_parametrization(layer, "weight", Doubled())


def words(n):
    return torch.randint(11, (n, 5)), labels(n)


def ragged(n):
    inputs = torch.randn(n, 6, 4).double()
    inputs[:, 0, 0] = 2.0 + torch.arange(n) % 5
    return inputs, labels(n)


sgd = functools.partial(torch.optim.SGD, lr=0.1)
momentum = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
table = functools.partial(nn.Embedding, 11, 6)
MODELS = {
    "sparse rows": (lambda: make_words(table(sparse=True)), words, momentum),
    "sparse rows, Adagrad": (lambda: make_words(table(sparse=True)), words, torch.optim.Adagrad),
    "sparse bags": (lambda: make_words(nn.EmbeddingBag(11, 6, sparse=True)), words, momentum),
    "a norm that no row has": (lambda: make_words(table(max_norm=9.0)), words, sgd),
    "a gain decays": (lambda: Gained(decayed), data, sgd),
    "a gain behind the last layer decays": (lambda: Gained(decayed, last=True), data, sgd),
    "a gain is set in part": (lambda: Gained(partly_set), data, sgd),
    "a gain is clamped": (lambda: Gained(clamped), data, sgd),
    "products are saved": (lambda: Checkpointed(products_saved, head=False), data, sgd),
    "the last product is saved": (lambda: Checkpointed(products_saved, head=True), data, sgd),
    "a list is saved": (lambda: Checkpointed([torch.ops.aten.tanh.default], head=False), data, sgd),
    "stacked heads": (make_stacked, data, sgd),
    "a layer behind stacked heads": (lambda: make_stacked(behind=True), data, sgd),
    "nested": (make_ragged, ragged, sgd),
    "nested to the last layer": (lambda: make_ragged(last=True), ragged, sgd),
    "cached": (lambda: parametrized(doubled), data, sgd),
    "cached weight norms": (lambda: parametrized(parametrizations.weight_norm), data, sgd),
}
REFUSED = {
    # by LAI and LLI; by backward="selective"
    "stacked heads": r"'heads' \(used by a function that cannot be watched\).*outside of torch.func.vmap",
    "nested to the last layer": r"linear of a nested tensor\).*pad its input",
}
SELECTIVE = {
    "sparse": "Embedding\\(sparse=False\\), or backward='kept'",
    "nested": "compiles in one graph.*use backward='kept'",
    "layer behind": "expects operations that keep samples apart, torch.nn.functional.linear mixes",
}
UNREAD = {"a layer behind stacked heads", "nested", "sparse bags"}
WARNING = "LAI has no readout"


def around(name):
    return parametrize.cached() if "cached" in name else nullcontext()


def per_sample(model, batch):
    """Return each sample's gradient by plain reverse mode on the sample alone, in eval mode."""
    found, before = [], copy.deepcopy(model.state_dict())
    model.eval()
    for inputs, target in zip(*(side.split(1) for side in batch), strict=True):
        parameters = [one for one in model.parameters() if one.requires_grad]
        gradients = torch.autograd.grad(LOSS(model(inputs), target).sum(), parameters, allow_unused=True)
        pairs = zip(gradients, parameters, strict=True)
        found.append(
            torch.cat([(torch.zeros_like(p) if g is None else g.to_dense()).flatten() for g, p in pairs])
        )
        model.load_state_dict(before)
    model.train()
    return torch.stack(found)


def trained(name, estimator, backward):
    """Train, keeping everything, and by plain torch; return both, the first scores, and the true ones."""
    torch.manual_seed(0)
    make, draw, optimizer = MODELS[name]
    model = make().double()
    twin, validation, batches = copy.deepcopy(model), draw(6), [draw(8) for _ in range(3)]
    expected = per_sample(model, batches[0]) @ per_sample(model, validation).sum(0)
    options = {"estimator": estimator, "backward": backward, "policy": EVERYTHING}
    curator, scores = lai_torch.Curator(model, LOSS, optimizer(model.parameters()), validation, **options), []
    for batch in batches:
        with around(name):
            scores.append(curator.step(*batch).scores)
    plain = optimizer(twin.parameters())
    for inputs, targets in batches:
        plain.zero_grad()
        LOSS(twin(inputs), targets).mean().backward()
        plain.step()
    return model.state_dict(), twin.state_dict(), scores[0], expected


@pytest.mark.filterwarnings("ignore:Sparse invariant")
@pytest.mark.parametrize("estimator", ["ghost", "exact"])
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_is_scored_and_trained(name, estimator):
    found, plain, scores, expected = trained(name, estimator, "kept")
    torch.testing.assert_close(found, plain)
    torch.testing.assert_close(scores, expected)


@pytest.mark.filterwarnings("ignore:Sparse invariant")
@pytest.mark.parametrize(("estimator", "backward"), [("lai", "kept"), ("lli", "kept"), ("lai", "whole")])
@pytest.mark.parametrize("name", MODELS)
def test_layers_are_read_or_refused(name, estimator, backward):
    if name in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[name]):
            trained(name, estimator, backward)
        return
    with pytest.warns(UserWarning, match=WARNING) if name in UNREAD else nullcontext():
        found, plain, scores, expected = trained(name, estimator, backward)
    torch.testing.assert_close(found, plain)
    assert float(torch.corrcoef(torch.stack([scores, expected]))[0, 1]) > 0.4


@pytest.mark.parametrize("name", ["sparse rows", "a gain decays", "products are saved", "nested", "cached"])
def test_a_graph_is_captured_or_refused(name):
    refusal = next((one for start, one in SELECTIVE.items() if name.startswith(start)), None)
    if refusal is None:
        found, plain, _, _ = trained(name, "lai", "selective")
        torch.testing.assert_close(found, plain)
        return
    with (
        pytest.warns(UserWarning, match=WARNING) if name in UNREAD else nullcontext(),
        pytest.raises(ValueError, match=refusal),
    ):
        trained(name, "lai", "selective")


def test_a_gain_of_the_batch_couples_samples():
    """Its write comes between a pass and its gradient, which is no error of torch's."""

    class Largest(Gained):
        def forward(self, inputs):
            hidden = torch.relu(self.body(inputs))
            with torch.no_grad():
                self.gain.copy_(torch.maximum(self.gain, hidden.amax(0)))
            return self.head(hidden * self.gain)

    torch.manual_seed(0)
    model = Largest(None).double()
    for gradients in ("output", "all"):
        with pytest.raises(ValueError, match="samples are coupled"):
            lai_torch.trace(model, LOSS, *data(8), gradients=gradients)
