"""Spikes of a loss."""

import numpy as np
import pytest

from analysis.stats.spikes import spikes


def test_a_spike_by_hand():
    """Losses 1 and 3 in turn: median 2, MAD 1, so the limit is 2 + 6 x 1.4826 = 10.8956."""
    losses = np.tile([1.0, 3.0], 15)
    for loss, expected in ((10.89, False), (10.90, True)):
        assert spikes(np.r_[losses, loss, 2.0]).tolist() == [False] * 30 + [expected, False]


def test_only_fifty_steps_before_count():
    old, recent = np.tile([100.0, 300.0], 50), np.tile([1.0, 3.0], 25)
    assert spikes(np.r_[old, recent, 11.0])[-1]
    assert not spikes(np.r_[recent, old, 11.0])[-1]


def test_too_little_is_known():
    losses = np.tile([1.0, 3.0], 9)  # 18
    assert not spikes(np.r_[losses, 1.0, 99.0]).any()  # 19 before it
    assert spikes(np.r_[losses, 1.0, 3.0, 99.0])[-1]  # 20
    assert not spikes(np.r_[losses, np.nan, np.inf, np.nan, 99.0])[-1]
    assert not spikes(np.r_[np.ones(40), 99.0]).any()  # MAD 0
    assert spikes(np.empty(0)).shape == (0,)


def test_a_falling_loss_and_noise_have_none():
    steps = np.arange(2000)
    noise = np.random.default_rng(0).normal(size=2000)
    assert not spikes(8 * np.exp(-steps / 300) + 2 + 0.2 * noise).any()


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_what_is_not_finite_is_no_spike(loss):
    assert not spikes(np.r_[np.tile([1.0, 3.0], 15), loss]).any()
