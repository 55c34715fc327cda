"""From runs to one frozen result: two runs, several arms, several training seeds."""
