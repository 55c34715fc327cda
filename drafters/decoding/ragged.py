"""A key-value cache whose rows have different lengths, written in place.

Speculative decoding appends a block, learns how much of it stands, and takes the rest back, a different
amount in every row. Here rows are contiguous from position 0 and a length per row says how much is real:
appending writes at each row's own end, taking back is a change of that number, and what lies beyond is
overwritten later and masked until then. Nothing is copied per step; growing doubles the room.

Rows come and go (continuous batching): new ones are appended behind the others and filled by a pass of their own, and
the last row moves into the place of one that leaves. Lengths are kept on the host, so that no step waits for a device
to learn them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

_ROOM = 256  # positions; the first allocation, and the least growth


class Rows:
    """Where the next tokens go: ``lengths``, the positions that are real in each row."""

    def __init__(self, lengths: Sequence[int], device: torch.device):
        self.lengths = list(lengths)
        self.device = device
        self.positions = torch.empty(0, dtype=torch.int64)  # [b, n] of the pass under way
        self.first = 0  # the first row of the pass under way
        self.used = 0  # positions 0..used-1 hold anything at all, in any row of the pass

    def begin(self, count: int, first: int = 0) -> torch.Tensor:
        """Reserve the next ``count`` positions of the rows from ``first`` on for the coming pass; returns them,
        [b, count]."""
        lengths = self.lengths[first:]
        starts = torch.tensor(lengths, dtype=torch.int64, device=self.device)
        self.positions = starts[:, None] + torch.arange(count, device=self.device)
        self.first, self.used = first, max(lengths) + count
        return self.positions

    def mask(self) -> torch.Tensor:
        """Bool [b, 1, n, used]: a token sees every position up to its own."""
        keys = torch.arange(self.used, device=self.device)
        return (keys <= self.positions[..., None])[:, None]


class Store:
    """One tensor of keys or values, [rows, heads, room, d], with room that doubles."""

    def __init__(self) -> None:
        self.data: torch.Tensor | None = None

    def write(self, new: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Put ``new`` [b, heads, n, d] at the positions of the pass; returns a view [b, heads, used, d] of its rows."""
        batch, heads, count, dim = new.shape
        data = self._reserve(rows, heads, dim, new)[rows.first : rows.first + batch]
        if batch == 1:
            start = rows.used - count
            data[:, :, start : rows.used] = new
        else:
            row = torch.arange(batch, device=new.device)[:, None]
            # both indices are advanced, so the indexed axes come first: [b, n, heads, d]
            data[row, :, rows.positions] = new.transpose(1, 2)
        return data[:, :, : rows.used]

    def put(self, new: torch.Tensor, row: torch.Tensor, position: torch.Tensor, rows: Rows) -> None:
        """Put packed ``new`` [heads, m, d] at m places (``row`` of the pass, ``position``)."""
        heads, _, dim = new.shape
        data = self._reserve(rows, heads, dim, new)
        data[row + rows.first, :, position] = new.transpose(0, 1)

    def view(self, rows: int, used: int) -> torch.Tensor:
        """Positions 0..used-1 of the first ``rows``, [rows, heads, used, d]."""
        assert self.data is not None, "nothing was written yet"
        return self.data[:rows, :, :used]

    def move(self, source: int, into: int, length: int) -> None:
        """Copy the first ``length`` positions of row ``source`` over those of row ``into``."""
        if self.data is not None:
            self.data[into, :, :length] = self.data[source, :, :length]

    def _reserve(self, rows: Rows, heads: int, dim: int, like: torch.Tensor) -> torch.Tensor:
        count, length = (0, 0) if self.data is None else (self.data.shape[0], self.data.shape[2])
        if self.data is None or count < len(rows.lengths) or length < rows.used:
            room = length if length >= rows.used else max(rows.used, 2 * length, length + _ROOM)
            grown = like.new_zeros(max(count, len(rows.lengths)), heads, room, dim)
            if self.data is not None:
                grown[:count, :, :length] = self.data
            self.data = grown
        return self.data


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

    def move(self, source: int, into: int, length: int) -> None:
        """See :meth:`Store.move`."""
        self._keys.move(source, into, length)
        self._values.move(source, into, length)

    def get_seq_length(self) -> int:
        """Real positions of the longest row of the pass."""
        return max(self.rows.lengths[self.rows.first :])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that a pass of ``query_length`` tokens sees, and their offset."""
        return self.rows.used, 0

    def get_max_length(self) -> int:
        """Unlimited."""
        return -1


class RaggedCache(Cache):
    """A transformers cache for a target of ``num_layers`` full-attention layers, rows of any lengths."""

    def __init__(self, num_layers: int, batch: int, device: torch.device):
        self.rows = Rows([0] * batch, device)
        super().__init__(layers=[_RaggedLayer(self.rows) for _ in range(num_layers)])

    def move(self, source: int, into: int) -> None:
        """Put row ``source`` into the place of row ``into``."""
        for layer in self.layers:
            assert isinstance(layer, _RaggedLayer)
            layer.move(source, into, self.rows.lengths[source])
        self.rows.lengths[into] = self.rows.lengths[source]
