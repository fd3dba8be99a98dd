// The rules of tron on arenas laid out by hand, and what the script is worth.
#include "envs/tron.c"
#include "tests/check.h"
#include "tests/rig.h"

static Rig rig;

// Agents in an arena of 24 cells without trails, the cycles at the given places.
static Tron* duel(int32_t num_cycles) {
    rig = RIG_START(&puf_env_tron, 1, 0, {"opponent", SELF}, {"num_cycles", num_cycles});
    Tron* env = rig_env(&rig, 0);
    memset(env->trails, 0, sizeof env->trails);
    for (int32_t y = 0; y < ROWS; y++) env->taken[y] = y >= 1 && y <= 24 ? ~inside(env) : ~0u;
    return env;
}

static void put(Tron* env, int32_t i, int32_t x, int32_t y, int32_t direction) {
    env->cycles[i] = (Cycle){x, y, direction, 1};
    take(env, i);
}

static void play(int32_t a, int32_t b, int32_t c, int32_t d) {
    const int32_t actions[] = {a, b, c, d};
    memcpy(rig.actions, actions, (size_t)rig.num_slots * sizeof(int32_t));
    puf_vec_step(rig.vec, NULL);
}

static void test_starts_are_turned_around_the_middle(void) {
    for (int32_t n = 2; n <= 4; n++) {
        rig = RIG_START(&puf_env_tron, 16, 1, {"opponent", SELF}, {"num_cycles", n});
        for (int32_t e = 0; e < 16; e++) {
            const Tron* env = rig_env(&rig, e);
            const Cycle* first = &env->cycles[0];
            int32_t free = 0;
            for (int32_t y = 0; y < ROWS; y++)
                for (int32_t x = 0; x < ROWS; x++) {
                    free += !is_taken(env, x, y);
                    if (x < 1 || x > 24 || y < 1 || y > 24) CHECK(is_taken(env, x, y));
                }
            CHECK(free == 24 * 24 - n);
            CHECK(first->x == 7 && first->y >= 1 && first->y <= 24 && first->direction == RIGHT);
            for (int32_t i = 0; i < n; i++) {
                const Cycle* cycle = &env->cycles[i];
                const int32_t quarters = n == 2 ? 2 * i : i;
                const int32_t x = 2 * first->x - 25, y = 2 * first->y - 25;  // from the middle
                const int32_t right = quarters == 0   ? x
                                      : quarters == 1 ? -y
                                      : quarters == 2 ? -x
                                                      : y;
                const int32_t down = quarters == 0   ? y
                                     : quarters == 1 ? x
                                     : quarters == 2 ? -y
                                                     : -x;
                CHECK(2 * cycle->x - 25 == right && 2 * cycle->y - 25 == down);
                CHECK(cycle->direction == ((RIGHT + quarters) & 3) && cycle->rides);
                CHECK(is_taken(env, cycle->x, cycle->y));
            }
        }
        rig_destroy(&rig);
    }
}

static void test_cycles_turn_move_and_leave_trails(void) {
    Tron* env = duel(2);
    put(env, 0, 5, 5, RIGHT);
    put(env, 1, 20, 20, UP);
    play(STRAIGHT, TURN_LEFT, 0, 0);
    CHECK(env->cycles[0].x == 6 && env->cycles[0].y == 5);
    CHECK(env->cycles[1].x == 19 && env->cycles[1].y == 20 && env->cycles[1].direction == LEFT);
    play(TURN_RIGHT, TURN_LEFT, 0, 0);
    CHECK(env->cycles[0].x == 6 && env->cycles[0].y == 6 && env->cycles[0].direction == DOWN);
    CHECK(env->cycles[1].x == 19 && env->cycles[1].y == 21);
    CHECK(is_taken(env, 5, 5) && is_taken(env, 6, 5) && is_taken(env, 6, 6));
    CHECK(is_taken(env, 20, 20) && env->trails[1][20] == 3u << 19 && !is_taken(env, 7, 5));
    CHECK(!rig.terminals[0] && rig.rewards[0] == 0);
    rig_destroy(&rig);
}

// Cycle 0 rides to the right from (12, 12) and crashes; cycle 1 is far away, or as given.
static void check_crash(Tron* env, float reward) {
    play(STRAIGHT, STRAIGHT, 0, 0);
    CHECK(rig.terminals[0] && rig.terminals[1]);
    CHECK(rig.rewards[0] == reward && rig.rewards[1] == -reward);
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 2 && stats.metrics[0] == 0 && stats.metrics[1] == 1);  // sums of both
    CHECK(env->cycles[0].rides && env->cycles[1].rides);                          // a new round
    rig_destroy(&rig);
}

static void test_borders_and_trails_are_deadly(void) {
    Tron* env = duel(2);
    put(env, 0, 24, 12, RIGHT);  // the border on the right
    put(env, 1, 3, 3, DOWN);
    check_crash(env, -1);
    env = duel(2);
    put(env, 0, 12, 12, RIGHT);
    put(env, 1, 13, 12, UP);  // the other one's trail: it has just left this cell
    check_crash(env, -1);
    env = duel(2);
    put(env, 0, 13, 12, UP);
    put(env, 0, 12, 12, RIGHT);  // its own trail
    put(env, 1, 3, 3, DOWN);
    check_crash(env, -1);
    env = duel(2);
    put(env, 0, 3, 3, DOWN);
    put(env, 1, 12, 1, UP);  // the other one crashes
    check_crash(env, 1);
}

static void test_cycles_that_meet_crash_both(void) {
    Tron* env = duel(2);
    put(env, 0, 12, 12, RIGHT);
    put(env, 1, 14, 12, LEFT);  // both enter (13, 12)
    check_crash(env, 0);
    env = duel(2);
    put(env, 0, 12, 12, RIGHT);
    put(env, 1, 13, 12, LEFT);  // both run into the other's trail
    check_crash(env, 0);
}

static void test_a_crashed_agent_leaves_and_the_last_one_wins(void) {
    Tron* env = duel(4);
    put(env, 0, 24, 5, RIGHT);
    put(env, 1, 3, 10, RIGHT);
    put(env, 2, 3, 15, RIGHT);
    put(env, 3, 3, 20, RIGHT);
    play(0, 0, 0, 0);
    CHECK(rig.terminals[0] && !rig.masks[0] && rig.rewards[0] == -1 && !env->cycles[0].rides);
    for (int32_t i = 1; i < 4; i++) CHECK(!rig.terminals[i] && rig.masks[i] && rig.rewards[i] == 0);
    play(0, 0, 0, 0);
    CHECK(!rig.terminals[0] && rig.rewards[0] == 0 && is_taken(env, 24, 5));
    put(env, 2, 24, 15, RIGHT);
    put(env, 3, 24, 20, RIGHT);
    play(0, 0, 0, 0);  // two crash together, but one still rides: both have lost
    CHECK(rig.rewards[1] == 1 && rig.rewards[2] == -1 && rig.rewards[3] == -1);
    CHECK(rig.terminals[1] && rig.terminals[2] && rig.terminals[3] && !rig.terminals[0]);
    CHECK(rig.masks[0] && env->cycles[0].rides);  // all are back
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    CHECK(stats.samples == 4 && stats.metrics[0] == -2 && stats.metrics[1] == 1);
    CHECK(stats.metrics[2] == 1 + 3 * 3);
    rig_destroy(&rig);
}

static void test_one_agent_ends_the_round_when_it_crashes(void) {
    rig = RIG_START(&puf_env_tron, 1, 0, {"num_cycles", 4});
    Tron* env = rig_env(&rig, 0);
    CHECK(rig.num_slots == 1);
    env->cycles[0] = (Cycle){24, env->cycles[0].y, RIGHT, 1};
    play(STRAIGHT, 0, 0, 0);
    CHECK(rig.terminals[0] && rig.rewards[0] == -1);
    CHECK(rig.masks[0] && env->cycles[0].x == 7 && env->slots.tick == 0);  // a new round
    rig_destroy(&rig);
}

static void test_observations_are_in_the_frame_of_the_cycle(void) {
    Tron* env = duel(2);
    put(env, 0, 2, 12, DOWN);  // ahead is down, right is to the left
    put(env, 1, 5, 18, RIGHT);
    env->taken[15] |= 1u << 2;
    env->trails[1][15] |= 1u << 2;
    play(STRAIGHT, STRAIGHT, 0, 0);  // at (2, 13) and (6, 18)
    const float *obs = rig.obs, *rays = obs + 81, *rooms = rays + 5, *other = rooms + 3;
    for (int32_t ahead = -4; ahead <= 4; ahead++)
        for (int32_t right = -4; right <= 4; right++) {
            const int32_t x = 2 - right, y = 13 + ahead;
            const bool trail =
                (x == 2 && (y == 12 || y == 13 || y == 15)) || (y == 18 && (x == 5 || x == 6));
            CHECK(obs[9 * (4 - ahead) + right + 4] == (x < 1 || trail));
        }
    // Left is +x: free up to 24; half left: (3, 14), (4, 15), (5, 16), (6, 17), ... to (13, 24);
    // ahead: (2, 14) only; half right: (1, 14) only; right: (1, 13) only.
    static const float cells[] = {22, 11, 1, 1, 1};
    for (int32_t i = 0; i < 5; i++) CHECK(fabsf(rays[i] - cells[i] / 24) < 1e-6f);
    CHECK(other[0] == 1 && fabsf(other[1] - 5 / 24.0f) < 1e-6f);
    CHECK(fabsf(other[2] + 4 / 24.0f) < 1e-6f && other[3] == 0 && other[4] == -1);
    CHECK(other[5] == 0 && other[10] == 0);
    CHECK(rooms[STRAIGHT] == 1 && rooms[TURN_LEFT] == 1 && rooms[TURN_RIGHT] == 1);
    rig_destroy(&rig);
}

static void test_moves_into_two_rooms_are_compared(void) {
    Tron* env = duel(2);
    float shares[NUM_MOVES];
    for (int32_t y = 1; y <= 24; y++) env->taken[y] |= 1u << 6;  // five columns on the left
    const Cycle rider = {6, 12, UP, 1};
    env->taken[11] ^= 1u << 6;  // ahead the wall has a gap, which touches both sides
    compare_rooms(env, &rider, shares);
    CHECK(shares[TURN_LEFT] == 1 && shares[STRAIGHT] == 1 && shares[TURN_RIGHT] == 1);
    env->taken[11] ^= 1u << 6;
    compare_rooms(env, &rider, shares);  // 5 and 18 columns of 24 cells
    CHECK(shares[STRAIGHT] == 0 && shares[TURN_RIGHT] == 1);
    CHECK(fabsf(shares[TURN_LEFT] - 5 / 18.0f) < 1e-6f);
    env->taken[12] |= 1u << 7;
    compare_rooms(env, &rider, shares);  // the only way is the best one
    CHECK(shares[STRAIGHT] == 0 && shares[TURN_RIGHT] == 0 && shares[TURN_LEFT] == 1);
    env->taken[12] ^= 1u << 7;
    env->taken[11] = (env->taken[11] ^ 1u << 6) | 1u << 5;  // free ahead, corner taken on the left
    env->taken[10] |= 1u << 5;
    for (int32_t x = 1; x <= 5; x++) env->taken[13] |= 1u << x;
    env->taken[11] |= 0x3E;  // the left is a pocket of one row, the rest is joined by the gap
    compare_rooms(env, &rider, shares);
    CHECK(shares[STRAIGHT] == 1 && shares[TURN_RIGHT] == 1 && shares[TURN_LEFT] < 0.05f);
    rig_destroy(&rig);
}

static void test_room_counts_what_can_be_reached(void) {
    Tron* env = duel(2);
    CHECK(room(env, 5, 5) == 24 * 24);
    for (int32_t x = 1; x <= 24; x++) env->taken[10] |= 1u << x;
    CHECK(room(env, 5, 5) == 24 * 9 && room(env, 5, 20) == 24 * 14 && room(env, 5, 10) == 0);
    env->taken[10] ^= 1u << 7;
    CHECK(room(env, 5, 5) == 24 * 23 + 1);
    rig_destroy(&rig);
}

static void test_script_turns_to_where_there_is_room(void) {
    rig = RIG_START(&puf_env_tron, 1, 0, {"opponent_random", 0});
    Tron* env = rig_env(&rig, 0);
    for (int32_t y = 0; y < ROWS; y++) env->taken[y] = y >= 1 && y <= 24 ? ~inside(env) : ~0u;
    const Cycle rider = {12, 5, RIGHT, 1};
    CHECK(ride_by_script(env, &rider) == STRAIGHT);
    for (int32_t x = 1; x <= 14; x++) env->taken[4] |= 1u << x;   // a wall from the left border
    for (int32_t y = 1; y <= 24; y++) env->taken[y] |= 1u << 14;  // and one ahead
    CHECK(ride_by_script(env, &rider) == TURN_RIGHT);
    for (int32_t x = 1; x <= 14; x++) env->taken[6] |= 1u << x;
    env->taken[4] &= ~(1u << 12);  // a door to the left, into 3 x 13 cells
    CHECK(ride_by_script(env, &rider) == TURN_LEFT);
    rig_destroy(&rig);
}

static void test_random_rides_take_free_cells_only(void) {
    Tron* env = duel(2);
    const Cycle rider = {12, 5, RIGHT, 1};
    int32_t left = 0;
    env->taken[5] |= 1u << 13;
    for (int32_t i = 0; i < 1000; i++) {
        const int32_t action = ride_randomly(env, &rider);
        CHECK(action != STRAIGHT);
        left += action == TURN_LEFT;
    }
    CHECK(left > 420 && left < 580);  // 5 standard deviations of 15.8
    rig_destroy(&rig);
}

// A first player that rides at random, or straight on where it can, against both opponents.
static double match(bool careful, int32_t opponent) {
    rig = RIG_START(&puf_env_tron, 64, 3, {"opponent", opponent});
    PufRng rng = {5};
    for (int32_t t = 0; t < 2000; t++) {
        rig_act(&rig, &rng);
        for (int32_t i = 0; careful && i < 64; i++) {
            Tron copy = *(Tron*)rig_env(&rig, i);
            rig.actions[i] = ride_by_script(&copy, &copy.cycles[0]);
        }
        puf_vec_step(rig.vec, NULL);
    }
    PufStats stats;
    puf_vec_drain(rig.vec, &stats);
    const double perf = stats.metrics[1] / (double)stats.samples;
    rig_destroy(&rig);
    return perf;
}

static void test_script_beats_random_rides_and_is_an_even_match_for_itself(void) {
    CHECK(match(false, SCRIPTED) < 0.05);
    CHECK(match(true, RANDOM) > 0.9);
    const double even = match(true, SCRIPTED);
    CHECK(even > 0.35 && even < 0.65);
}

int main(void) {
    test_starts_are_turned_around_the_middle();
    test_cycles_turn_move_and_leave_trails();
    test_borders_and_trails_are_deadly();
    test_cycles_that_meet_crash_both();
    test_a_crashed_agent_leaves_and_the_last_one_wins();
    test_one_agent_ends_the_round_when_it_crashes();
    test_observations_are_in_the_frame_of_the_cycle();
    test_moves_into_two_rooms_are_compared();
    test_room_counts_what_can_be_reached();
    test_script_turns_to_where_there_is_room();
    test_random_rides_take_free_cells_only();
    test_script_beats_random_rides_and_is_an_even_match_for_itself();
    return CHECK_DONE();
}
