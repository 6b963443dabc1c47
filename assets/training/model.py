"""Qwen3 in PyTorch, as small as training needs it; parameter names are transformers' own."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .presets import NORM_EPSILON, ROPE_BASE, ModelShape

INITIAL_DEVIATION = 0.02


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis, computed in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        exact = x.float()
        scale = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + NORM_EPSILON)
        return (exact * scale * self.weight).to(x.dtype)


def rotation_tables(head_size: int, context: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, each [context, head_size]."""
    frequencies = 1 / ROPE_BASE ** (torch.arange(0, head_size, 2) / head_size)
    angles = torch.outer(torch.arange(context).float(), frequencies)
    both_halves = torch.cat((angles, angles), dim=-1)
    return both_halves.cos(), both_halves.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding to [batch, heads, window, head_size]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of [batch, heads, window, size] over [batch, kv_heads, window, size].

    On a CPU plain products with a softmax take 35 ms where PyTorch's fused attention takes 85
    (forward and backward, 16 windows of 256 tokens in bfloat16, compiled, one thread).
    """
    batch, heads, window, size = queries.shape
    kv_heads = keys.shape[1]
    if queries.is_cuda:
        keys, values = (each.repeat_interleave(heads // kv_heads, dim=1) for each in (keys, values))
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    grouped = queries.reshape(batch, kv_heads, -1, size)
    scores = (grouped @ keys.transpose(-1, -2)).float() / math.sqrt(size)
    later = torch.ones(window, window, dtype=torch.bool, device=queries.device).triu(1)
    masked = scores.view(batch, heads, window, window).masked_fill(later, float("-inf"))
    shares = masked.softmax(-1).to(values.dtype).view(scores.shape)
    return (shares @ values).view(batch, heads, window, size)


class Attention(nn.Module):
    """Causal grouped-query attention with normalised queries and keys."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        inner, kv_inner = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.q_proj = nn.Linear(shape.width, inner, bias=False)
        self.k_proj = nn.Linear(shape.width, kv_inner, bias=False)
        self.v_proj = nn.Linear(shape.width, kv_inner, bias=False)
        self.o_proj = nn.Linear(inner, shape.width, bias=False)
        self.q_norm = RMSNorm(shape.head_size)
        self.k_norm = RMSNorm(shape.head_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[batch, window, width] -> [batch, window, width]"""
        batch, window, _ = x.shape
        by_head = (batch, window, -1, self.shape.head_size)
        queries = self.q_norm(self.q_proj(x).view(by_head)).transpose(1, 2)
        keys = self.k_norm(self.k_proj(x).view(by_head)).transpose(1, 2)
        values = self.v_proj(x).view(by_head).transpose(1, 2)
        attended = attend(rotate(queries, cos, sin), rotate(keys, cos, sin), values)
        joined = attended.transpose(1, 2).reshape(batch, window, -1)
        return torch.as_tensor(self.o_proj(joined))


class FeedForward(nn.Module):
    """The gated feed-forward layer (SwiGLU)."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down_proj = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)))


class Block(nn.Module):
    """Attention and feed-forward, each normalised before and added after."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.width)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.width)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + torch.as_tensor(self.mlp(self.post_attention_layernorm(x)))


class Qwen3(nn.Module):
    """The whole model; the output layer is the embedding table."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: ModelShape, *, vocabulary: int, context: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width)
        cos, sin = rotation_tables(shape.head_size, context)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise(shape)

    def _initialise(self, shape: ModelShape) -> None:
        # Outputs of the residual branches start smaller, so that depth does not add up.
        branch_deviation = INITIAL_DEVIATION / math.sqrt(2 * shape.layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                is_branch = name.endswith(("o_proj.weight", "down_proj.weight"))
                deviation = branch_deviation if is_branch else INITIAL_DEVIATION
                nn.init.normal_(parameter, std=deviation)

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids [batch, window] -> normalised states [batch, window, width]."""
        x = self.embed_tokens(tokens)
        window = tokens.shape[1]
        cos, sin = self.cos[:window], self.sin[:window]
        for block in self.layers:
            x = block(x, cos, sin)
        return torch.as_tensor(self.norm(x))

    def logits(self, states: Tensor) -> Tensor:
        """States [..., width] -> logits [..., vocabulary]."""
        return F.linear(states, self.embed_tokens.weight)
