"""What can be measured of a run or a pair beside the headline: positions, gates, speed, fairness, and more."""
