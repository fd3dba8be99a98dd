"""Self-play: in a two-sided env, past versions of the policy play the other side.

The learner plays one side of every game, the first in even envs and the second in odd ones. In some
games the latest policy plays the other side too, in the rest a member of a pool of past policies,
drawn for each game. Games against the pool give ratings (Elo 1978), which rise while the policy
gets stronger; its win rate against itself is always one half.

With several processes each plays its own games; the pool and the ratings are common. The opponent
of a game follows from the seed and the number of the game in its env, so it depends neither on a
resume nor on the number of processes.
"""

from pufferlib.selfplay.env import SelfPlay, against_past, as_self_play, check_sides, self_play_of

__all__ = ["SelfPlay", "against_past", "as_self_play", "check_sides", "self_play_of"]
