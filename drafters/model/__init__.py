"""The drafter: blocks and anchors, fusion of target layers, attention, the frozen head."""
