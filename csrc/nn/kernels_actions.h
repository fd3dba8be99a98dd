// kernels_actions.h - sampling actions and the PPO loss; included by kernels_source.h only.
//
// The same rules as pufferlib/policies/distributions.py and training/ppo.py, for LANES steps at a
// time. Illegal choices have the logit ILLEGAL: probability 0, no gradient.

#define ILLEGAL -1e30f
#define LOG_SQRT_2PI 0.918938533204672742f
#define LOG_2 0.693147180559945309f

// Gauss-Hermite quadrature of a standard Gaussian.
enum { NUM_NODES = 8 };
static const float nodes[NUM_NODES] = {-4.14454719f, -2.80248586f, -1.63651904f, -0.539079811f,
                                       0.539079811f, 1.63651904f,  2.80248586f,  4.14454719f};
static const float node_weights[NUM_NODES] = {0.000112614538f, 0.00963522012f, 0.117239908f,
                                              0.373012258f,    0.373012258f,   0.117239908f,
                                              0.00963522012f,  0.000112614538f};

// Replaces logits [n] of one component by log-probabilities; returns the sum of exp(logit - max),
// with the exponentials in `weights` [n].
INLINE vec normalise(int32_t n, float* logits, const int32_t* legal, float* weights) {
    vec top = SET(2 * ILLEGAL);
    for (int32_t j = 0; j < n; j++) {
        vec logit = load(logits + j * PUF_TILE);
        if (legal) {
            logit = pick(load_int(legal + j * PUF_TILE), logit, SET(ILLEGAL));
            store(logits + j * PUF_TILE, logit);
        }
        top = pick(logit <= top, top, logit);  // nan wins, and spreads
    }
    vec total = {0};
    for (int32_t j = 0; j < n; j++) {
        vec weight = exp_of(load(logits + j * PUF_TILE) - top);
        store(weights + j * PUF_TILE, weight);
        total += weight;
    }
    vec offset = top + log_of(total);
    for (int32_t j = 0; j < n; j++)
        store(logits + j * PUF_TILE, load(logits + j * PUF_TILE) - offset);
    return total;
}

// Whether an agent has a legal choice; an agent that waits for its turn has none. Used only where
// Box actions and action masks occur together.
INLINE ivec is_acting(const PufActionHead* head, const int32_t* legal) {
    ivec any = {0};
    const int32_t width = head->num_logits ? head->num_logits : 1;
    for (int32_t j = 0; j < width; j++) any |= load_int(legal + j * PUF_TILE);
    return any;
}

// log |d squash / dx| of a bounded component: log(scale * (1 - tanh(x)^2)).
INLINE vec log_slope(vec x, float scale_log) {
    return 2.0f * (LOG_2 - x - softplus_of(-2.0f * x)) + scale_log;
}

INLINE vec mean_of(const PufActionHead* head, int32_t component, vec output) {
    if (head->squash) return output;
    return FMA(output, SET(head->scale[component]), SET(head->center[component]));
}

static void sample(const PufActionHead* head, PufColumns* steps) {
    for (int32_t row = 0; row < steps->rows; row += LANES) {
        vec logprob = {0};
        const int32_t* legal = steps->legal ? steps->legal + row : NULL;
        float *logits = steps->outputs + row, *weights = steps->gradients + row;
        const float* uniform = steps->uniforms + row;
        int32_t* choice = steps->choices + row;
        for (int32_t c = 0; c < head->num_discrete; c++) {
            const int32_t n = head->nvec[c];
            vec total = normalise(n, logits, legal, weights);
            // choice j is drawn iff cdf[j - 1] <= u < cdf[j]: one of probability 0 never is
            vec u = load(uniform) * (total * (1.0f - 1e-6f)), cumulative = {0};
            ivec drawn = {0};
            for (int32_t j = 0; j < n; j++) {
                cumulative += load(weights + j * PUF_TILE);
                drawn -= cumulative <= u;
            }
            vec chosen = load(logits);
            for (int32_t j = 1; j < n; j++)
                chosen = pick(drawn == j, load(logits + j * PUF_TILE), chosen);
            store_int(choice, drawn);
            logprob += chosen;
            logits += n * PUF_TILE, weights += n * PUF_TILE;
            uniform += PUF_TILE, choice += PUF_TILE;
            if (legal) legal += n * PUF_TILE;
        }
        for (int32_t c = 0; c < head->num_continuous; c++) {
            const float std = head->std[c];
            // Box and Muller 1958
            vec radius = -2.0f * log_of(1.0f - load(uniform));
            vec noise = SQRT(radius) * cos_turns(load(uniform + PUF_TILE));
            vec real = FMA(noise, SET(std), mean_of(head, c, load(logits + c * PUF_TILE)));
            vec env_real = real;
            logprob += -0.5f * noise * noise - (head->log_std[c] + LOG_SQRT_2PI);
            if (head->squash) {
                const float scale = head->scale[c];
                vec inner = real;
                if (head->bounded[c]) {
                    logprob -= log_slope(real, __builtin_logf(scale));
                    inner = tanh_of(real);
                }
                env_real = FMA(inner, SET(scale), SET(head->center[c]));
            }
            env_real = min_of(max_of(env_real, SET(head->low[c])), SET(head->high[c]));
            store(steps->reals + c * PUF_TILE + row, real);
            store(steps->env_reals + c * PUF_TILE + row, env_real);
            uniform += 2 * PUF_TILE;
        }
        if (steps->legal && head->num_continuous)
            logprob = zero_unless(is_acting(head, steps->legal + row), logprob);
        store(steps->logprobs + row, logprob);
    }
}

// Mean of log_slope under a Gaussian, and its gradients by mean and std.
INLINE vec mean_log_slope(vec mean, float std, float scale_log, vec* of_mean, vec* of_std) {
    vec total = {0};
    *of_mean = *of_std = (vec){0};
    for (int32_t i = 0; i < NUM_NODES; i++) {
        vec x = mean + std * nodes[i];
        vec slope = -2.0f * tanh_of(x) * node_weights[i];
        total += log_slope(x, scale_log) * node_weights[i];
        *of_mean += slope;
        *of_std += slope * nodes[i];
    }
    return total;
}

// Log-probability and entropy of the actions of LANES steps. Leaves log-probabilities in the place
// of logits, probabilities in `gradients`, and the entropy of each component in `entropies`.
INLINE vec judge(const PufActionHead* head, PufColumns* steps, int32_t row, vec* entropy) {
    vec logprob = {0};
    *entropy = (vec){0};
    const int32_t* legal = steps->legal ? steps->legal + row : NULL;
    float *logits = steps->outputs + row, *weights = steps->gradients + row;
    for (int32_t c = 0; c < head->num_discrete; c++) {
        const int32_t n = head->nvec[c];
        vec scale = 1.0f / normalise(n, logits, legal, weights);
        const ivec taken = load_int(steps->choices + c * PUF_TILE + row);
        vec chosen = load(logits), bits = {0};
        for (int32_t j = 0; j < n; j++) {
            vec log_p = load(logits + j * PUF_TILE), p = load(weights + j * PUF_TILE) * scale;
            store(weights + j * PUF_TILE, p);
            bits -= p * log_p;
            chosen = pick(taken == j, log_p, chosen);
        }
        store(steps->entropies + c * PUF_TILE + row, bits);
        *entropy += bits;
        logprob += chosen;
        logits += n * PUF_TILE, weights += n * PUF_TILE;
        if (legal) legal += n * PUF_TILE;
    }
    for (int32_t c = 0; c < head->num_continuous; c++) {
        vec mean = mean_of(head, c, load(logits + c * PUF_TILE));
        vec real = load(steps->reals + c * PUF_TILE + row);
        vec noise = (real - mean) / head->std[c];
        logprob += -0.5f * noise * noise - (head->log_std[c] + LOG_SQRT_2PI);
        *entropy += SET(head->log_std[c] + 0.5f + LOG_SQRT_2PI);
        if (head->squash && head->bounded[c]) {
            const float scale_log = __builtin_logf(head->scale[c]);
            vec of_mean, of_std;
            logprob -= log_slope(real, scale_log);
            *entropy += mean_log_slope(mean, head->std[c], scale_log, &of_mean, &of_std);
        }
    }
    if (steps->legal && head->num_continuous) {
        const ivec acting = is_acting(head, steps->legal + row);
        *entropy = zero_unless(acting, *entropy);
        logprob = zero_unless(acting, logprob);
    }
    return logprob;
}

// Gradients of a loss whose slopes by log-probability and entropy are given, [LANES] each; 0 where
// a step does not count, whatever it holds.
INLINE void judge_backward(const PufActionHead* head, PufColumns* steps, int32_t row, ivec counts,
                           vec of_logprob, vec of_entropy, vec* of_log_std) {
    const int32_t* legal = steps->legal ? steps->legal + row : NULL;
    const float* log_ps = steps->outputs + row;
    float* gradients = steps->gradients + row;
    if (steps->legal && head->num_continuous) {
        const ivec acting = is_acting(head, steps->legal + row);
        of_logprob = zero_unless(acting, of_logprob);
        of_entropy = zero_unless(acting, of_entropy);
    }
    for (int32_t c = 0; c < head->num_discrete; c++) {
        const int32_t n = head->nvec[c];
        const ivec taken = load_int(steps->choices + c * PUF_TILE + row);
        const vec bits = load(steps->entropies + c * PUF_TILE + row);
        for (int32_t j = 0; j < n; j++) {
            vec p = load(gradients + j * PUF_TILE), log_p = load(log_ps + j * PUF_TILE);
            vec of_logit = of_logprob * (zero_unless(taken == j, SET(1.0f)) - p) -
                           of_entropy * p * (log_p + bits);
            if (legal) of_logit = zero_unless(load_int(legal + j * PUF_TILE), of_logit);
            store(gradients + j * PUF_TILE, zero_unless(counts, of_logit));
        }
        log_ps += n * PUF_TILE, gradients += n * PUF_TILE;
        if (legal) legal += n * PUF_TILE;
    }
    for (int32_t c = 0; c < head->num_continuous; c++) {
        const float std = head->std[c];
        vec mean = mean_of(head, c, load(log_ps + c * PUF_TILE));
        vec noise = (load(steps->reals + c * PUF_TILE + row) - mean) / std;
        vec of_mean = of_logprob * noise / std;
        vec of_log = of_logprob * (noise * noise - 1.0f) + of_entropy;
        if (head->squash && head->bounded[c]) {
            vec by_mean, by_std;
            mean_log_slope(mean, std, 0.0f, &by_mean, &by_std);
            of_mean += of_entropy * by_mean;
            of_log += of_entropy * by_std * std;
        }
        of_log_std[c] += zero_unless(counts, of_log);
        of_mean = zero_unless(counts, head->squash ? of_mean : of_mean * head->scale[c]);
        store(gradients + c * PUF_TILE, of_mean);
    }
}

enum { MAX_CONTINUOUS = 64 };  // puf_network_create refuses more

static void ppo(const PufActionHead* head, const PufLossOptions* options, PufColumns* steps,
                double losses[PUF_NUM_LOSSES], float* of_log_std) {
    vec totals[8] = {{0}}, of_logs[MAX_CONTINUOUS];
    for (int32_t c = 0; c < head->num_continuous; c++) of_logs[c] = (vec){0};
    const int32_t value_at = (head->num_logits + head->num_continuous) * PUF_TILE;
    const float clip = options->clip_coef, value_clip = options->vf_clip_coef;
    // in a loop of its own: the chains of several rows overlap
    for (int32_t row = 0; row < steps->rows; row += LANES) {
        vec entropy, logprob = judge(head, steps, row, &entropy);
        store(steps->logprobs + row, logprob);
        store(steps->entropy + row, entropy);
    }
    for (int32_t row = 0; row < steps->rows; row += LANES) {
        const ivec counts = load_int(steps->present + row);
        const vec advantage = load(steps->advantages + row), goal = load(steps->returns + row);
        const vec weight = load(steps->weights + row), share = weight * options->share;
        const vec logprob = load(steps->logprobs + row), entropy = load(steps->entropy + row);

        const vec log_ratio = zero_unless(counts, logprob - load(steps->old_logprobs + row));
        const vec ratio = exp_of(log_ratio);
        const vec clipped = min_of(max_of(ratio, SET(1.0f - clip)), SET(1.0f + clip));
        const vec gain = ratio * advantage, clipped_gain = clipped * advantage;
        const ivec is_free = ~(gain > clipped_gain);  // the unclipped one is the smaller: it counts
        const vec surrogate = pick(is_free, gain, clipped_gain);
        const vec of_logprob = zero_unless(is_free, -gain) * share;

        const vec value = load(steps->outputs + value_at + row), error = value - goal;
        vec squared = error * error, of_value = error;
        if (value_clip >= 0.0f) {
            const vec old = load(steps->old_values + row), moved = value - old;
            const vec limited = min_of(max_of(moved, SET(-value_clip)), SET(value_clip));
            const vec other = old + limited - goal, other_squared = other * other;
            const ivec is_other = other_squared > squared;
            // where the clipped value errs more, it counts, and moves only inside of the range
            of_value = pick(is_other, zero_unless(moved == limited, other), of_value);
            squared = pick(is_other, other_squared, squared);
        }
        of_value = of_value * share * options->vf_coef;

        judge_backward(head, steps, row, counts, of_logprob, share * -options->ent_coef, of_logs);
        store(steps->gradients + value_at + row, zero_unless(counts, of_value));
        totals[0] -= zero_unless(counts, surrogate * weight);
        totals[1] += zero_unless(counts, squared * weight * 0.5f);
        totals[2] += zero_unless(counts, entropy * weight);
        totals[3] += zero_unless(counts, ratio - 1.0f - log_ratio);
        totals[4] -= log_ratio;
        totals[5] += zero_unless(counts & (abs_of(ratio - 1.0f) > clip), SET(1.0f));
    }
    for (int32_t first = 0; first < PUF_NUM_LOSSES; first += GROUP) {
        const vec sums = sum_each(totals + first);
        for (int32_t i = first; i < PUF_NUM_LOSSES && i < first + GROUP; i++)
            losses[i] += (double)sums[i - first];
    }
    for (int32_t c = 0; c < head->num_continuous; c++)
        of_log_std[c] += (float)sum_lanes(of_logs[c]);
}
