// puf_hill.h - the car in the valley of mountaincar and mountaincar_continuous.
//
// The valley is sin(3 x) from x = -1.2, where a wall stops the car, to 0.6. Constants and the order
// of the updates are those of Gymnasium's MountainCar-v0 and MountainCarContinuous-v0.
#ifndef PUF_HILL_H
#define PUF_HILL_H

#include "puf_env.h"
#include "puf_trig.h"

static const double HILL_LEFT = -1.2, HILL_RIGHT = 0.6, HILL_MAX_SPEED = 0.07;
static const double HILL_GRAVITY = 0.0025;

typedef struct {
    double x, speed;
} PufHillCar;

// At rest near the bottom of the valley.
static inline PufHillCar puf_hill_start(PufRng* rng) {
    return (PufHillCar){(double)puf_rand_range(rng, -0.6f, -0.4f), 0};
}

// Change of speed per step by gravity, where the car stands.
static inline double puf_hill_pull(double x) { return -HILL_GRAVITY * puf_cos(3 * x); }

// One step with a change of speed by engine and gravity.
static inline void puf_hill_drive(PufHillCar* car, double change) {
    double speed = car->speed + change;
    speed = speed < -HILL_MAX_SPEED ? -HILL_MAX_SPEED : speed;
    speed = speed > HILL_MAX_SPEED ? HILL_MAX_SPEED : speed;
    double x = car->x + speed;
    if (x > HILL_RIGHT) x = HILL_RIGHT;
    if (x <= HILL_LEFT) {
        x = HILL_LEFT;
        if (speed < 0) speed = 0;
    }
    *car = (PufHillCar){x, speed};
}

// Energy of the car: 0 at rest at the bottom, 1 at rest on top. Its gain is the shaped reward.
static inline double puf_hill_energy(const PufHillCar* car) {
    return 0.5 + 0.5 * puf_sin(3 * car->x) + 0.75 * car->speed * car->speed / HILL_GRAVITY;
}

static inline bool puf_hill_valid(const PufHillCar* car) {
    const double slack = 1e-6;  // a state in single precision may round beyond a limit
    return car->x >= HILL_LEFT - slack && car->x <= HILL_RIGHT + slack &&
           fabs(car->speed) <= HILL_MAX_SPEED + slack;
}

// The valley from the side with a flag at `goal`; `push` from -1 to 1 shows as exhaust.
static inline void puf_hill_draw(const PufHillCar* car, double goal, float push, int32_t tick,
                                 PufCanvas* canvas) {
    const float width = (float)canvas->width, height = (float)canvas->height;
    const float scale = width / (float)(HILL_RIGHT - HILL_LEFT), rise = 0.3f * height;
    const float base = 0.6f * height;
    enum { COLUMNS = 60 };
    puf_clear(canvas, PUF_INK);
    for (int32_t i = 0; i < COLUMNS; i++) {  // strips of ground, so that the polygon stays small
        float left = (float)i / COLUMNS, right = (float)(i + 1) / COLUMNS;
        float y0 = base - rise * (float)puf_sin(3 * (HILL_LEFT + (HILL_RIGHT - HILL_LEFT) * left));
        float y1 = base - rise * (float)puf_sin(3 * (HILL_LEFT + (HILL_RIGHT - HILL_LEFT) * right));
        float x0 = left * width, x1 = right * width + 1;
        puf_polygon(canvas, (const float[]){x0, y0, x1, y1, x1, height, x0, height}, 4, PUF_SLATE);
        puf_line(canvas, x0, y0, x1, y1, 4, PUF_GREEN);
    }
    const float flag = (float)(goal - HILL_LEFT) * scale;
    const float foot = base - rise * (float)puf_sin(3 * goal);
    puf_line(canvas, flag, foot, flag, foot - 56, 3, PUF_PAPER);
    puf_polygon(canvas, (const float[]){flag, foot - 56, flag + 26, foot - 46, flag, foot - 36}, 3,
                PUF_YELLOW);
    // The car, turned along the slope: (ux, uy) points forwards, (uy, -ux) upwards.
    const float slope = -3 * rise * (float)puf_cos(3 * car->x) / scale;
    const float ux = 1 / sqrtf(1 + slope * slope), uy = slope * ux;
    const float x = (float)(car->x - HILL_LEFT) * scale + 4 * uy;
    const float y = base - rise * (float)puf_sin(3 * car->x) - 4 * ux;
#define AT(forwards, up) x + (forwards) * ux + (up) * uy, y + (forwards) * uy - (up) * ux
    puf_polygon(canvas, (const float[]){AT(-24, 5), AT(24, 5), AT(24, 16), AT(-24, 16)}, 4,
                PUF_RED);
    puf_polygon(canvas, (const float[]){AT(-14, 16), AT(12, 16), AT(6, 27), AT(-10, 27)}, 4,
                PUF_CYAN);
    puf_circle(canvas, AT(-13, 5), 7, PUF_BLACK);
    puf_circle(canvas, AT(13, 5), 7, PUF_BLACK);
    puf_circle(canvas, AT(-13, 5), 3, PUF_GREY);
    puf_circle(canvas, AT(13, 5), 3, PUF_GREY);
    for (int32_t i = 1; i <= 3 && push != 0; i++) {
        float behind = push > 0 ? -24.0f : 24.0f, away = push > 0 ? -9.0f : 9.0f;
        puf_circle(canvas, AT(behind + away * (float)i, 9), 5 - (float)i, PUF_GREY);
    }
#undef AT
    puf_textf(canvas, 10, 10, 2, PUF_PAPER, "STEP %d", (int)tick);
}

#endif
