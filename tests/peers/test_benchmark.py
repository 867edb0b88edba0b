"""The peer that the cost benchmark measures computes Ghost's scores."""

import pytest
import torch
from torch import Tensor, nn

from benchmarks import peer_torch
from benchmarks.models import Work
from tests.peers.cases import SAMPLE_LOSSES
from workloads.torch_parts import resnet18


def convolutional() -> Work:
    """Return work on a narrow ResNet, its BatchNorm with running statistics of its own."""
    sides = [(torch.randn(n, 3, 32, 32), torch.arange(n) % 10) for n in (12, 9)]
    work = Work(resnet18(width=4), SAMPLE_LOSSES, *sides)
    with torch.no_grad():
        work.model.train()(sides[1][0])
    return work


class Words(nn.Module):
    """Word and position embeddings under a head tied to the words, as transformers builds them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(7, 4), nn.Embedding(5, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        places = torch.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
        return self.head(torch.tanh(self.words(input_ids) + self.places(places)).mean(1))


def sequential() -> Work:
    """Return work on sequences of words."""
    sides = [({"input_ids": torch.randint(7, (n, 5))}, torch.arange(n) % 7) for n in (12, 9)]
    return Work(Words(), SAMPLE_LOSSES, *sides)


WORKS = {"convolutional": convolutional, "sequential": sequential}


@pytest.fixture(params=WORKS)
def work(request) -> Work:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return WORKS[request.param]()


def one_by_one(peer: peer_torch.Peer) -> Tensor:
    """Return the scores by one backward pass per sample, on the parameters the peer sees."""

    def gradient(inputs, targets, index):
        one = {key: ids[index] for key, ids in inputs.items()} if isinstance(inputs, dict) else inputs[index]
        loss = peer.work.losses(one, targets[index]).sum()
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, peer.parameters)])

    with peer.without_norms():
        direction = gradient(*peer.work.validation, slice(None))
        samples = range(len(peer.work.batch[1]))
        return torch.stack([direction @ gradient(*peer.work.batch, [index]) for index in samples])


def test_the_peers_scores_are_those_of_one_backward_pass_per_sample(work):
    peer = peer_torch.Peer(work)
    assert torch.allclose(peer.scores(), one_by_one(peer), rtol=1e-4, atol=1e-5)


def test_what_the_peer_refuses_is_named():
    with pytest.raises(NotImplementedError, match="buffers"):
        peer_torch.GradSampleModule(convolutional().model)
