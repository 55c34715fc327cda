"""A key-value cache whose rows have different lengths, written in place.

Speculative decoding appends a block, learns how much of it stands, and takes the rest back, a different
amount in every row. Here rows are contiguous from position 0 and a length per row says how much is real:
appending writes at each row's own end, taking back is a change of that number, and what lies beyond is
overwritten later and masked until then. Nothing is copied per step; growing doubles the room.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

_ROOM = 256  # positions; the first allocation, and the least growth


class Rows:
    """Where the next tokens go: ``lengths`` int64 [b], the positions that are real in each row."""

    def __init__(self, lengths: torch.Tensor):
        self.lengths = lengths
        self.positions = torch.empty(0, dtype=torch.int64)  # [b, n] of the pass under way
        self.used = 0  # positions 0..used-1 hold anything at all, in any row

    def begin(self, count: int) -> torch.Tensor:
        """Reserve the next ``count`` positions of every row for the coming pass; returns them, [b, count]."""
        steps = torch.arange(count, device=self.lengths.device)
        self.positions = self.lengths[:, None] + steps
        self.used = int(self.lengths.max()) + count
        return self.positions

    def mask(self) -> torch.Tensor:
        """Bool [b, 1, n, used]: a token sees every position up to its own."""
        keys = torch.arange(self.used, device=self.lengths.device)
        return (keys <= self.positions[..., None])[:, None]


class Store:
    """One tensor of keys or values, [b, heads, room, d], with room that doubles."""

    def __init__(self) -> None:
        self.data: torch.Tensor | None = None

    def write(self, new: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Put ``new`` [b, heads, n, d] at the rows' positions; returns a view [b, heads, used, d]."""
        batch, heads, count, dim = new.shape
        data = self._reserve(rows.used, (batch, heads, dim), new)
        if batch == 1:
            start = rows.used - count
            data[:, :, start : rows.used] = new
        else:
            row = torch.arange(batch, device=new.device)[:, None]
            # both indices are advanced, so the indexed axes come first: [b, n, heads, d]
            data[row, :, rows.positions] = new.transpose(1, 2)
        return data[:, :, : rows.used]

    def put(self, new: torch.Tensor, row: torch.Tensor, position: torch.Tensor, rows: Rows) -> None:
        """Put packed ``new`` [heads, m, d] at m places (``row``, ``position``) of the pass under way."""
        heads, _, dim = new.shape
        data = self._reserve(rows.used, (len(rows.lengths), heads, dim), new)
        data[row, :, position] = new.transpose(0, 1)

    def view(self, used: int) -> torch.Tensor:
        """Positions 0..used-1, [b, heads, used, d]."""
        assert self.data is not None, "nothing was written yet"
        return self.data[:, :, :used]

    def _reserve(self, length: int, shape: tuple[int, int, int], like: torch.Tensor) -> torch.Tensor:
        if self.data is None or self.data.shape[2] < length:
            held = 0 if self.data is None else self.data.shape[2]
            batch, heads, dim = shape
            grown = like.new_zeros(batch, heads, max(length, 2 * held, held + _ROOM), dim)
            if self.data is not None:
                grown[:, :, :held] = self.data
            self.data = grown
        return self.data

    def select(self, kept: torch.Tensor) -> None:
        """Keep only these rows of the batch."""
        if self.data is not None:
            self.data = self.data[kept]


class _RaggedLayer(CacheLayerMixin):
    """One target layer's keys and values, in the shape that transformers expects of a cache layer."""

    is_croppable = True

    def __init__(self, rows: Rows):
        super().__init__()
        self.rows, self._keys, self._values = rows, Store(), Store()
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the stores allocate on the first write."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the pass's keys and values; returns all that the pass may look at."""
        return self._keys.write(key_states, self.rows), self._values.write(value_states, self.rows)

    def select(self, kept: torch.Tensor) -> None:
        """Keep only these rows of the batch."""
        self._keys.select(kept)
        self._values.select(kept)

    def get_seq_length(self) -> int:
        """Real positions of the longest row."""
        return int(self.rows.lengths.max())

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that a pass of ``query_length`` tokens sees, and their offset."""
        return self.rows.used, 0

    def get_max_length(self) -> int:
        """Unlimited."""
        return -1


class RaggedCache(Cache):
    """A transformers cache for a target of ``num_layers`` full-attention layers, rows of any lengths."""

    def __init__(self, num_layers: int, batch: int, device: torch.device):
        self.rows = Rows(torch.zeros(batch, dtype=torch.int64, device=device))
        super().__init__(layers=[_RaggedLayer(self.rows) for _ in range(num_layers)])

    def select(self, kept: torch.Tensor) -> None:
        """Keep only these rows of the batch."""
        self.rows.lengths = self.rows.lengths[kept]
        for layer in self.layers:
            assert isinstance(layer, _RaggedLayer)
            layer.select(kept)
