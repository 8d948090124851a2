"""Trains a small transformer with MoE routing and attention over NSA-compressed keys and values, by the operators of anycann.torch.

anycann run examples/train_transformer.py
anycann run examples/train_transformer.py --plain        # the same model by torch's own operators
anycann run examples/train_transformer.py --compare      # both, step for step, within stated bounds
anycann run examples/train_transformer.py --processes 2 --checkpoint state.pt --steps 20
anycann run examples/train_transformer.py --processes 2 --checkpoint state.pt --steps 40 --resume

The task: every sequence runs through one of four cycles of eight tokens, and most tokens are in several of them. The token alone does not
tell the next one; the compressed windows, which say what else came before, do.
"""

import argparse
import hashlib
import math
import os
import tempfile
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

import anycann
import anycann.torch

VOCABULARY, CYCLES, CYCLE = 16, 4, 8
LENGTHS = (96, 96, 80, 80, 48, 48, 24, 24)  # of the sequences of a batch; process r of n takes every n-th from r on; 24 make no window
HIDDEN, HEADS, HEAD = 32, 2, 16
WINDOW, STRIDE = 32, 16
EXPERTS, CHOSEN, INNER = 4, 2, 32
BLOCKS, RATE = 2, 5e-3
LOSS_BOUND, PARAMETER_BOUND = 2e-6, 1e-4  # of --compare over 40 steps: of the value, and of the largest value of each parameter


def plain_moe_token_permute(tokens: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    order = torch.argsort(indices.flatten(), stable=True)
    return tokens.index_select(0, order // indices.shape[1]), torch.argsort(order)


def plain_moe_token_unpermute(permuted_tokens: Tensor, sorted_indices: Tensor, probs: Tensor) -> Tensor:
    return (permuted_tokens.index_select(0, sorted_indices).unflatten(0, probs.shape) * probs[..., None]).sum(1)


def plain_nsa_compress(input: Tensor, weight: Tensor, compress_block_size: int, compress_stride: int, act_seq_len: list[int]) -> Tensor:
    parts = [input[start:end] for start, end in pairwise([0, *act_seq_len]) if end - start >= compress_block_size]
    windows = torch.cat([part.unfold(0, compress_block_size, compress_stride) for part in parts])  # [C, N, D, W]
    return torch.einsum("cndw,wn->cnd", windows, weight)


PLAIN = SimpleNamespace(
    gelu=F.gelu,
    layer_norm=F.layer_norm,
    smooth_l1_loss=F.smooth_l1_loss,
    moe_token_permute=plain_moe_token_permute,
    moe_token_unpermute=plain_moe_token_unpermute,
    nsa_compress=plain_nsa_compress,
)


def batch(step: int, rank: int, processes: int) -> tuple[Tensor, Tensor, list[int]]:
    """This process's tokens of a step, the tokens that follow them, and where its sequences end. The step is all it depends on."""
    fixed, drawn = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1000 + step)
    cycles = torch.stack([torch.randperm(VOCABULARY, generator=fixed)[:CYCLE] for _ in range(CYCLES)])
    which = torch.randint(CYCLES, (len(LENGTHS),), generator=drawn)
    start = torch.randint(CYCLE, (len(LENGTHS),), generator=drawn)
    mine = range(rank, len(LENGTHS), processes)
    runs = [cycles[which[i], (start[i] + torch.arange(LENGTHS[i] + 1)) % CYCLE] for i in mine]
    return torch.cat([run[:-1] for run in runs]), torch.cat([run[1:] for run in runs]), list(accumulate(LENGTHS[i] for i in mine))


def visible(ends: list[int]) -> Tensor:
    """[T, 1 + C]: the windows that lie before each token in its sequence; the first column is a key that every token sees."""
    windows = [(start, end, at) for start, end in pairwise([0, *ends]) for at in range(start + WINDOW, end + 1, STRIDE)]
    token = torch.arange(ends[-1])
    return torch.stack([token >= 0] + [(at <= token + 1) & (start <= token) & (token < end) for start, end, at in windows], 1)


class Block(nn.Module):
    """Attention over compressed keys and values, then experts; `ops` computes."""

    def __init__(self, ops: Any) -> None:
        super().__init__()
        self.ops = ops
        for name in ("attention", "experts"):
            setattr(self, f"{name}_scale", nn.Parameter(torch.ones(HIDDEN)))
            setattr(self, f"{name}_shift", nn.Parameter(torch.zeros(HIDDEN)))
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HEADS * HEAD, bias=False) for _ in range(3))
        self.output = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.key_weight, self.value_weight = (nn.Parameter(torch.full((WINDOW, HEADS), 1 / WINDOW)) for _ in range(2))
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER) / math.sqrt(HIDDEN))
        self.down = nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN) / math.sqrt(INNER))

    def attention(self, x: Tensor, ends: list[int], mask: Tensor) -> Tensor:
        query, key, value = (linear(x).unflatten(1, (HEADS, HEAD)) for linear in (self.query, self.key, self.value))
        key = self.ops.nsa_compress(key, self.key_weight, WINDOW, STRIDE, ends)  # [C, N, D]
        value = self.ops.nsa_compress(value, self.value_weight, WINDOW, STRIDE, ends)
        key, value = (F.pad(one, (0, 0, 0, 0, 1, 0)) for one in (key, value))  # what tokens before the first window see: nothing
        scores = torch.einsum("tnd,cnd->tnc", query, key) / math.sqrt(HEAD)
        weights = scores.masked_fill(~mask[:, None], -math.inf).softmax(-1)
        return self.output(torch.einsum("tnc,cnd->tnd", weights, value).flatten(1))

    def experts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the chosen experts' answers, and a small penalty for a decided router."""
        logits = self.router(x)
        probs, chosen = logits.softmax(-1).topk(CHOSEN)
        copies, rows = self.ops.moe_token_permute(x, chosen)
        parts = copies.split(chosen.flatten().bincount(minlength=EXPERTS).tolist())
        answers = torch.cat([self.ops.gelu(part @ up) @ down for part, up, down in zip(parts, self.up, self.down, strict=True)])
        penalty = self.ops.smooth_l1_loss(logits, torch.zeros_like(logits))
        return self.ops.moe_token_unpermute(answers, rows, probs / probs.sum(-1, keepdim=True)), penalty

    def forward(self, x: Tensor, ends: list[int], mask: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.attention(self.ops.layer_norm(x, (HIDDEN,), self.attention_scale, self.attention_shift), ends, mask)
        found, penalty = self.experts(self.ops.layer_norm(x, (HIDDEN,), self.experts_scale, self.experts_shift))
        return x + found, penalty


class Model(nn.Module):
    def __init__(self, ops: Any) -> None:
        super().__init__()
        self.ops = ops
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.ModuleList([Block(ops) for _ in range(BLOCKS)])
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def loss(self, tokens: Tensor, following: Tensor, ends: list[int]) -> Tensor:
        x, mask, penalties = self.embedding(tokens), visible(ends), torch.zeros(())
        for block in self.blocks:
            x, penalty = block(x, ends, mask)
            penalties = penalties + penalty
        return F.cross_entropy(self.head(self.ops.layer_norm(x, (HIDDEN,))), following) + 0.01 * penalties


class Training:
    """A model and its optimizer after so many steps; the same in every process."""

    def __init__(self, plain: bool, rank: int = 0, processes: int = 1) -> None:
        torch.manual_seed(0)
        self.model, self.step, self.rank, self.processes = Model(PLAIN if plain else anycann.torch), 0, rank, processes
        self.optimizer = torch.optim.Adam(self.model.parameters(), RATE)

    def advance(self) -> float:
        """One step; its loss over the whole batch."""
        self.optimizer.zero_grad()
        loss = self.model.loss(*batch(self.step, self.rank, self.processes))
        loss.backward()
        gradients = [parameter.grad for parameter in self.model.parameters()]
        flat = torch.cat([one.flatten() for one in (loss.detach(), *gradients)])
        if self.processes > 1:
            dist.all_reduce(flat)  # every process has equally many tokens: the mean of its means is the mean of all
            flat /= self.processes
        for gradient, part in zip(gradients, flat[1:].split([one.numel() for one in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))
        self.optimizer.step()
        self.step += 1
        return flat[0].item()

    def save(self, path: str) -> None:
        """Under a temporary name first: what is at `path` is always a whole checkpoint."""
        state = {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, f"{path}.part")
        os.replace(f"{path}.part", path)

    def load(self, path: str) -> None:
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def digest(self) -> str:
        """Of every bit of the parameters and of the optimizer's moments."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in (*self.model.parameters(), *moments))).hexdigest()[:16]


def compare(args: argparse.Namespace, rank: int) -> None:
    ours, plain = (Training(plain, rank, args.processes) for plain in (False, True))
    losses = parameters = 0.0
    while ours.step < args.steps:
        loss, other = ours.advance(), plain.advance()
        pairs = zip(ours.model.parameters(), plain.model.parameters(), strict=True)
        apart = max(((one - two).abs().max() / two.abs().max()).item() for one, two in pairs)
        losses, parameters = max(losses, abs(loss - other) / other), max(parameters, apart)
        if rank == 0:
            print(f"step {ours.step:3}  loss {loss:.6f}  plain {other:.6f}  parameters differ by {apart:.1e}")
    within = losses <= LOSS_BOUND and parameters <= PARAMETER_BOUND
    if rank == 0:
        print(f"losses differ by {losses:.1e}, bound {LOSS_BOUND:.0e}; parameters by {parameters:.1e}, bound {PARAMETER_BOUND:.0e}")
    if not within:
        raise SystemExit("the two models differ by more than the bounds")


def train(args: argparse.Namespace, rank: int) -> None:
    training = Training(args.plain, rank, args.processes)
    if args.resume:
        training.load(args.checkpoint)
    while training.step < args.steps:
        loss = training.advance()
        if rank == 0 and (training.step == 1 or training.step % args.every == 0):
            print(f"step {training.step:3}  loss {loss:.1f}")
            if args.checkpoint:
                training.save(args.checkpoint)
    if rank == 0 and args.checkpoint:
        training.save(args.checkpoint)
        print(f"{args.checkpoint}: step {training.step}, state {training.digest()}")


def process(rank: int, args: argparse.Namespace, store: str) -> None:
    torch.set_num_threads(1)
    anycann.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if args.processes > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=args.processes)
    (compare if args.compare else train)(args, rank)
    if args.processes > 1:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40, help="steps in all, those of a resumed checkpoint included")
    parser.add_argument("--every", type=int, default=10, help="steps from one line, and one checkpoint, to the next")
    parser.add_argument("--processes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--checkpoint", metavar="PATH", help="where the state is kept")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--plain", action="store_true", help="torch's own operators in place of those of anycann")
    kind.add_argument("--compare", action="store_true", help="both, step for step")
    args = parser.parse_args()
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint")
    if args.compare and args.checkpoint:
        parser.error("--compare keeps no checkpoint")
    if args.processes == 1:
        process(0, args, "")
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(process, (args, f"{folder}/store"), args.processes)


if __name__ == "__main__":
    main()
