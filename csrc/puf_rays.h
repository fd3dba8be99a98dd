// puf_rays.h - how far a fan of rays reaches before it hits a wall.
#ifndef PUF_RAYS_H
#define PUF_RAYS_H

#include <stdint.h>

#include "puf_hot.h"

enum { PUF_MAX_RAY_POINTS = 64 };

// Rays start at the origin; ray k has the direction (dx[k], dy[k]) of length 1. The wall is the
// line through `count` <= PUF_MAX_RAY_POINTS points. Each distance falls to that of the nearest hit
// if that is below its value: start with the range of the rays. Several walls: several calls.
PUF_HOT static void puf_cast_rays(const float* restrict x, const float* restrict y, int32_t count,
                                  const float* restrict dx, const float* restrict dy, int32_t rays,
                                  float* restrict distances) {
    float area[PUF_MAX_RAY_POINTS], side[PUF_MAX_RAY_POINTS];
    for (int32_t i = 0; i < count - 1; i++) area[i] = x[i] * y[i + 1] - y[i] * x[i + 1];
    for (int32_t k = 0; k < rays; k++) {
        // Which side of the ray each point is on, and how far. A stretch whose ends are on
        // different sides crosses the line of the ray at `area / difference` along it.
        float nearest = distances[k];
        for (int32_t i = 0; i < count; i++) side[i] = dx[k] * y[i] - dy[k] * x[i];
        for (int32_t i = 0; i < count - 1; i++) {
            const float difference = side[i + 1] - side[i];
            const float at = area[i] / (difference == 0 ? 1 : difference);
            const int32_t crosses = (side[i] <= 0) != (side[i + 1] <= 0);
            nearest = crosses & (at >= 0) & (at < nearest) ? at : nearest;
        }
        distances[k] = nearest;
    }
}

#endif
