// puf_rays.h - how far a fan of rays reaches before it hits a wall.
#ifndef PUF_RAYS_H
#define PUF_RAYS_H

#include <stdint.h>

#include "puf_hot.h"

enum { PUF_MAX_RAYS = 16 };

// Rays start at the origin; ray k has the direction (dx[k], dy[k]) of length 1, or 0 for one that
// hits nothing. The wall is the line through `count` points. Each distance falls to that of the
// nearest hit if that is below its value: start with the range of the rays. Several walls: several
// calls.
//
// A stretch whose ends are on different sides of a ray crosses its line at `area / (side -
// before)` along it. All rays go through one vector loop per stretch.
PUF_HOT static void puf_cast_rays(const float* restrict x, const float* restrict y, int32_t count,
                                  const float dx[PUF_MAX_RAYS], const float dy[PUF_MAX_RAYS],
                                  float distances[PUF_MAX_RAYS]) {
    float before[PUF_MAX_RAYS], nearest[PUF_MAX_RAYS];
    for (int32_t k = 0; k < PUF_MAX_RAYS; k++) {
        before[k] = dx[k] * y[0] - dy[k] * x[0];
        nearest[k] = distances[k];
    }
    for (int32_t i = 1; i < count; i++) {
        const float px = x[i], py = y[i], area = x[i - 1] * py - y[i - 1] * px;
        for (int32_t k = 0; k < PUF_MAX_RAYS; k++) {
            const float side = dx[k] * py - dy[k] * px, difference = side - before[k];
            const int32_t crosses = (side <= 0) ^ (before[k] <= 0);
            const float at = area / (crosses ? difference : 1);
            nearest[k] = crosses & (at >= 0) & (at < nearest[k]) ? at : nearest[k];
            before[k] = side;
        }
    }
    for (int32_t k = 0; k < PUF_MAX_RAYS; k++) distances[k] = nearest[k];
}

#endif
