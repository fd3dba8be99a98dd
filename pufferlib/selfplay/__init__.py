"""Self-play: a two-sided env in which the other side is played by the policy's own past.

The learner plays one side of every game, the first in even envs and the second in odd ones. The
other side is the latest policy itself in a part of the games, else one of a pool of snapshots,
drawn anew for each game. Games against the pool give ratings (Elo 1978): a number that rises while
the policy gets stronger, which a win rate against itself, always one half, cannot show.

With several processes each has games of its own; the pool and the ratings are those of all. Whom a
game is against follows from the seed and the number of the game in its env, so neither a resume nor
the number of processes changes it.
"""

from pufferlib.selfplay.env import SelfPlay, check_sides
from pufferlib.selfplay.making import against_past, as_self_play, self_play_of
from pufferlib.selfplay.pool import RATING_STEP, START_RATING, Member, Normalise, Pool, Result

__all__ = [
    "RATING_STEP",
    "START_RATING",
    "Member",
    "Normalise",
    "Pool",
    "Result",
    "SelfPlay",
    "against_past",
    "as_self_play",
    "check_sides",
    "self_play_of",
]
