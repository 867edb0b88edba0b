"""A captured graph written as a function gives what the graph gives, by fewer calls."""

import pytest
import torch
from lai_torch._captured.code import function_of
from torch.fx.experimental.proxy_tensor import make_fx


def views(x, w):
    return x.view(2, -1).view(3, -1).view(6, 4).t().t().mm(w).detach().expand(6, 5).mul(2.0)


def results(x, w):
    """Return results that are one tensor by another name, and one that is reshaped twice."""
    out = x.mm(w)
    return out, out.detach(), out.view(30).view(5, 6), x[0:]


def turned(x, w):
    """Transpose by what are not each other's inverse."""
    cube = x.view(2, 3, 4)
    return cube.transpose(0, 1).transpose(1, 2).clone(), w.t().transpose(0, 1).clone(), cube.permute(2, 0, 1)


def sliced(x, w):
    """Take slices that leave something out, and reshapes of what does not lie in one piece."""
    return x[:, 1:].sum(1, keepdim=True), x.t()[1:].unflatten(1, (2, 3)), torch.addmm(w[0], x, w, beta=2.0)


def numbers(x, w):
    """Take numbers as arguments, one by its name, and a table whose rows are repeated."""
    return x * 2 + torch.sub(x, 1, alpha=3), x[:1].expand(3, 4) + 1, w.sum([0, 1]), w.clone()


@pytest.mark.parametrize("function", [views, results, turned, sliced, numbers])
def test_the_function_gives_what_the_graph_gives(function):
    torch.manual_seed(0)
    given = torch.randn(6, 4), torch.randn(4, 5)
    graph = make_fx(function, tracing_mode="symbolic")(*given)
    expected, boxed = torch.utils._pytree.tree_leaves(function(*given)), [*given]
    with torch.no_grad():
        found = torch.utils._pytree.tree_leaves(function_of(graph)(boxed))
    assert not boxed
    assert [one.stride() for one in found] == [one.stride() for one in expected]
    assert all(map(torch.equal, found, expected))
    assert len({id(one) for one in found}) == len({id(one) for one in expected})


def test_values_of_other_nodes_come_behind_the_results():
    graph = make_fx(lambda x, w: (x.mm(w) + 1).sum(), tracing_mode="symbolic")(
        torch.ones(6, 4), torch.ones(4, 5)
    )
    (product,) = (node for node in graph.graph.nodes if node.target is torch.ops.aten.mm.default)
    found, (value,) = function_of(graph, [product])([torch.ones(6, 4), torch.ones(4, 5)])
    assert float(found) == 6 * 5 * 5
    assert torch.equal(value, torch.full((6, 5), 4.0))
