/* The code predictor in plain C, as an engine of one's own: about what is least, to start from or to compare with.
 *
 *     python -m bench engine-header > cp_engine.h
 *     python -m bench engine-header --example > engine.c
 *     cc -O3 -march=native -fopenmp -shared -fPIC engine.c -o libengine.so -lm      # -fopenmp: optional
 *     cc -O3 -march=native -fopenmp -DCP_PROGRAM engine.c -o engine -lm             # the same as a program
 *     python -m bench gate --model synthetic:tiny --variants external:./libengine.so,external:./engine
 *
 * KV cache, 16 single tokens a frame, weights decoded to float32 once, a loop over rows for each matrix. Reads GGUF files of the lab's own dialect
 * with F32, F16 and BF16 tensors, all of it into memory. Little-endian machines only.
 */
#include "cp_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LAYERS 64
#define MOST_GROUPS 64
enum { IN_NORM, Q, K, V, Q_NORM, K_NORM, O, POST_NORM, GATE, UP, DOWN, PARTS };
static const char *PART[PARTS] = {"attn_norm",   "attn_q",   "attn_k",   "attn_v", "attn_q_norm", "attn_k_norm",
                                  "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"};

typedef struct {
    int hidden, inter, layers, heads, kv_heads, dim, vocab, groups, talker, threads;
    float theta, eps;
    float *w[MOST_LAYERS][PARTS], *norm, *embd[MOST_GROUPS], *head[MOST_GROUPS], *proj, *bias;
    float *k, *v; /* [layers][groups][kv_heads * dim] */
    float *rope; /* [groups][dim / 2][2], cosine and sine */
    float *x, *y, *q, *a, *g, *u, *z, *logits;
} Engine;

static char last_error[256];

/* ---- the file ---- */

static uint64_t number(const uint8_t **at, int bytes) {
    uint64_t value = 0;
    memcpy(&value, *at, bytes);
    *at += bytes;
    return value;
}

/* Step over a value of metadata; its bits where it is a number. */
static uint64_t value_of(const uint8_t **at, uint32_t type) {
    static const int SIZE[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
        uint64_t n = number(at, 8);
        *at += n;
        return 0;
    }
    if (type == 9) {
        uint32_t inner = (uint32_t)number(at, 4);
        for (uint64_t n = number(at, 8); n > 0; n--) value_of(at, inner);
        return 0;
    }
    return number(at, SIZE[type]);
}

static float half(uint16_t h) {
    uint32_t sign = (uint32_t)(h >> 15) << 31, e = (h >> 10) & 31, m = h & 1023, bits;
    float f;
    if (e == 0) return (sign ? -1.0f : 1.0f) * (float)m * 0x1p-24f;
    bits = sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
    memcpy(&f, &bits, 4);
    return f;
}

static float *decoded(const uint8_t *data, uint32_t type, uint64_t count) {
    float *out = malloc(count * sizeof *out);
    if (!out || (type != 0 && type != 1 && type != 30)) return free(out), NULL;
    for (uint64_t i = 0; i < count; i++) {
        uint16_t h;
        uint32_t bits;
        if (type == 0) memcpy(&out[i], data + 4 * i, 4);
        else if (memcpy(&h, data + 2 * i, 2), type == 1) out[i] = half(h);
        else bits = (uint32_t)h << 16, memcpy(&out[i], &bits, 4);
    }
    return out;
}

/* Where a tensor of that name belongs, or NULL. */
static float **place(Engine *e, const char *name) {
    int n, end = 0;
    if (!strcmp(name, "code_pred.output_norm.weight")) return &e->norm;
    if (!strcmp(name, "code_pred.mtp_proj.weight")) return &e->proj;
    if (!strcmp(name, "code_pred.mtp_proj.bias")) return &e->bias;
    if (sscanf(name, "code_pred.codec_embd.%d.weight", &n) == 1 && n < MOST_GROUPS) return &e->embd[n];
    if (sscanf(name, "code_pred.lm_head.%d.weight", &n) == 1 && n < MOST_GROUPS) return &e->head[n];
    if (sscanf(name, "code_pred.blk.%d.%n", &n, &end) == 1 && n < MOST_LAYERS)
        for (int p = 0; p < PARTS; p++) {
            size_t length = strlen(PART[p]);
            if (!strncmp(name + end, PART[p], length) && !strcmp(name + end + length, ".weight")) return &e->w[n][p];
        }
    return NULL;
}

static void set_key(Engine *e, const char *key, uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    struct { const char *key; int *field; } ints[] = {
        {"qwen3-tts.code_pred.embedding_length", &e->hidden},
        {"qwen3-tts.code_pred.feed_forward_length", &e->inter},
        {"qwen3-tts.code_pred.block_count", &e->layers},
        {"qwen3-tts.code_pred.attention.head_count", &e->heads},
        {"qwen3-tts.code_pred.attention.head_count_kv", &e->kv_heads},
        {"qwen3-tts.code_pred.attention.key_length", &e->dim},
        {"qwen3-tts.code_pred.vocab_size", &e->vocab},
        {"qwen3-tts.num_code_groups", &e->groups},
        {"qwen3-tts.talker.embedding_length", &e->talker},
    };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (!strcmp(key, ints[i].key)) *ints[i].field = (int)low;
    if (!strcmp(key, "qwen3-tts.code_pred.rope.freq_base")) memcpy(&e->theta, &low, 4);
    if (!strcmp(key, "qwen3-tts.code_pred.attention.layer_norm_rms_epsilon")) memcpy(&e->eps, &low, 4);
}

static int read_file(Engine *e, const uint8_t *file) {
    const uint8_t *at = file + 4, *names = NULL;
    char name[128];
    if (memcmp(file, "GGUF", 4) || number(&at, 4) != 3) return 0;
    uint64_t tensors = number(&at, 8), keys = number(&at, 8);
    for (uint64_t i = 0; i < keys + tensors; i++) {
        uint64_t length = number(&at, 8), dims;
        snprintf(name, sizeof name, "%.*s", (int)length, (const char *)at);
        at += length;
        if (i < keys) {
            uint32_t type = (uint32_t)number(&at, 4);
            set_key(e, name, value_of(&at, type));
            continue;
        }
        if (i == keys) names = at - length - 8;
        dims = number(&at, 4);
        at += 8 * dims + 4 + 8;
    }
    const uint8_t *data = file + ((at - file) + 31) / 32 * 32;
    at = names;
    for (uint64_t i = 0; i < tensors; i++) {
        uint64_t length = number(&at, 8), count = 1;
        snprintf(name, sizeof name, "%.*s", (int)length, (const char *)at);
        at += length;
        for (uint64_t d = number(&at, 4); d > 0; d--) count *= number(&at, 8);
        uint32_t type = (uint32_t)number(&at, 4);
        uint64_t offset = number(&at, 8);
        float **where = place(e, name);
        if (where && !(*where = decoded(data + offset, type, count))) {
            snprintf(last_error, sizeof last_error, "%.100s: only F32, F16 and BF16 are read here", name);
            return 0;
        }
    }
    return 1;
}

static float *floats(size_t count) { return calloc(count, sizeof(float)); }

void *cp_load(const char *path, int threads) {
    Engine *e = calloc(1, sizeof *e);
    FILE *stream = fopen(path, "rb");
    uint8_t *file = NULL;
    long size = 0;
    snprintf(last_error, sizeof last_error, "not a file that this engine reads");
    if (stream && !fseek(stream, 0, SEEK_END) && (size = ftell(stream)) > 32 && (file = malloc(size))) {
        rewind(stream);
        if (fread(file, 1, size, stream) != (size_t)size || !read_file(e, file)) size = 0;
    }
    if (stream) fclose(stream);
    free(file);
    if (size <= 32 || !e->norm || e->layers < 1 || e->layers > MOST_LAYERS || e->groups > MOST_GROUPS) {
        cp_free(e);
        return NULL;
    }
    size_t kv = (size_t)e->kv_heads * e->dim, q = (size_t)e->heads * e->dim;
    e->threads = threads;
    e->k = floats(e->layers * e->groups * kv), e->v = floats(e->layers * e->groups * kv);
    e->x = floats(e->hidden), e->y = floats(e->hidden), e->z = floats(e->hidden);
    e->q = floats(q), e->a = floats(q), e->g = floats(e->inter), e->u = floats(e->inter), e->logits = floats(e->vocab);
    e->rope = floats((size_t)e->groups * e->dim);
    for (int i = 0; i < e->groups * e->dim / 2; i++) {
        int position = i / (e->dim / 2), pair = i % (e->dim / 2);
        double angle = position * pow(e->theta, -2.0 * pair / e->dim);
        e->rope[2 * i] = (float)cos(angle), e->rope[2 * i + 1] = (float)sin(angle);
    }
    return e;
}

/* ---- a frame ---- */

static float dot(const float *w, const float *x, int n) {
    float lane[16] = {0}, sum = 0;
    for (int i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++) lane[j] += w[i + j] * x[i + j];
    for (int j = 0; j < 16; j++) sum += lane[j];
    return sum;
}

static void times(const Engine *e, const float *w, const float *x, float *out, int rows, int n) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(e->threads) schedule(static)
#endif
    for (int r = 0; r < rows; r++) out[r] = dot(w + (size_t)r * n, x, n);
    (void)e; /* unused without OpenMP */
}

static void norm(const Engine *e, const float *x, const float *w, float *out, int n) {
    float r = 1.0f / sqrtf(dot(x, x, n) / (float)n + e->eps);
    for (int i = 0; i < n; i++) out[i] = x[i] * r * w[i];
}

/* Norm each head and turn it to its position. */
static void rotated(const Engine *e, float *heads, int count, const float *w, int position) {
    int half_dim = e->dim / 2;
    const float *turn = e->rope + (size_t)position * e->dim;
    for (int h = 0; h < count; h++) {
        float *x = heads + (size_t)h * e->dim;
        norm(e, x, w, x, e->dim);
        for (int i = 0; i < half_dim; i++) {
            float c = turn[2 * i], s = turn[2 * i + 1], a = x[i], b = x[i + half_dim];
            x[i] = a * c - b * s, x[i + half_dim] = b * c + a * s;
        }
    }
}

static void attend(const Engine *e, const float *k, const float *v, int position) {
    int kv = e->kv_heads * e->dim, shared = e->heads / e->kv_heads;
    for (int h = 0; h < e->heads; h++) {
        int at = h / shared * e->dim;
        float p[MOST_GROUPS], largest = -INFINITY, sum = 0, *out = e->a + (size_t)h * e->dim;
        for (int t = 0; t <= position; t++) {
            p[t] = dot(e->q + (size_t)h * e->dim, k + (size_t)t * kv + at, e->dim) / sqrtf((float)e->dim);
            largest = fmaxf(largest, p[t]);
        }
        for (int t = 0; t <= position; t++) sum += p[t] = expf(p[t] - largest);
        memset(out, 0, e->dim * sizeof *out);
        for (int t = 0; t <= position; t++)
            for (int i = 0; i < e->dim; i++) out[i] += p[t] / sum * v[(size_t)t * kv + at + i];
    }
}

/* One token [talker] at a position through all layers; e->x is the residual stream. */
static void token(Engine *e, const float *input, int position) {
    int kv = e->kv_heads * e->dim, q = e->heads * e->dim;
    if (e->proj) {
        times(e, e->proj, input, e->x, e->hidden, e->talker);
        for (int i = 0; i < e->hidden; i++) e->x[i] += e->bias[i];
    } else {
        memcpy(e->x, input, e->hidden * sizeof *e->x);
    }
    for (int l = 0; l < e->layers; l++) {
        float **w = e->w[l], *keys = e->k + (size_t)l * e->groups * kv, *values = e->v + (size_t)l * e->groups * kv;
        float *k = keys + (size_t)position * kv;
        norm(e, e->x, w[IN_NORM], e->y, e->hidden);
        times(e, w[Q], e->y, e->q, q, e->hidden);
        times(e, w[K], e->y, k, kv, e->hidden);
        times(e, w[V], e->y, values + (size_t)position * kv, kv, e->hidden);
        rotated(e, e->q, e->heads, w[Q_NORM], position);
        rotated(e, k, e->kv_heads, w[K_NORM], position);
        attend(e, keys, values, position);
        times(e, w[O], e->a, e->z, e->hidden, q);
        for (int i = 0; i < e->hidden; i++) e->x[i] += e->z[i];
        norm(e, e->x, w[POST_NORM], e->y, e->hidden);
        times(e, w[GATE], e->y, e->g, e->inter, e->hidden);
        times(e, w[UP], e->y, e->u, e->inter, e->hidden);
        for (int i = 0; i < e->inter; i++) e->g[i] = e->g[i] / (1.0f + expf(-e->g[i])) * e->u[i];
        times(e, w[DOWN], e->g, e->z, e->hidden, e->inter);
        for (int i = 0; i < e->hidden; i++) e->x[i] += e->z[i];
    }
}

int cp_predict_logits(void *handle, const float *hidden, const float *cb0_embed, const int32_t *forced, int32_t *codes,
                      float *logits) {
    Engine *e = handle;
    const float *input = cb0_embed;
    token(e, hidden, 0);
    for (int g = 0; g < e->groups - 1; g++) {
        float *out = logits ? logits + (size_t)g * e->vocab : e->logits;
        token(e, input, g + 1);
        norm(e, e->x, e->norm, e->y, e->hidden);
        times(e, e->head[g], e->y, out, e->vocab, e->hidden);
        codes[g] = 0;
        for (int i = 1; i < e->vocab; i++)
            if (out[i] > out[codes[g]]) codes[g] = i;
        input = e->embd[g] + (size_t)(forced ? forced[g] : codes[g]) * e->talker;
    }
    return 0;
}

int cp_predict(void *handle, const float *hidden, const float *cb0_embed, int32_t *codes) {
    return cp_predict_logits(handle, hidden, cb0_embed, NULL, codes, NULL);
}

void cp_free(void *handle) {
    Engine *e = handle;
    if (!e) return;
    for (int l = 0; l < MOST_LAYERS; l++)
        for (int p = 0; p < PARTS; p++) free(e->w[l][p]);
    for (int g = 0; g < MOST_GROUPS; g++) free(e->embd[g]), free(e->head[g]);
    float *others[] = {e->norm, e->proj, e->bias, e->k, e->v, e->rope, e->x,
                       e->y,    e->q,    e->a,    e->g, e->u, e->z,    e->logits};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) free(others[i]);
    free(e);
}

const char *cp_describe(void *handle) {
    (void)handle;
#ifdef _OPENMP
    return "the lab's example engine in plain C, OpenMP";
#else
    return "the lab's example engine in plain C, one thread";
#endif
}

const char *cp_error(void *handle) {
    (void)handle;
    return last_error;
}

/* ---- the same as a program ---- */

#ifdef CP_PROGRAM
static int all(void *data, size_t size) { return fread(data, 1, size, stdin) == size; }
static void say(const void *data, size_t size) { fwrite(data, 1, size, stdout); }

int main(int count, char **arguments) {
    Engine *e = count == 3 ? cp_load(arguments[1], atoi(arguments[2])) : NULL;
    uint32_t one = 1, zero = 0, request[4];
    if (!e) return fprintf(stderr, "%s\n", count == 3 ? last_error : "MODEL_FILE THREADS are wanted"), 1;
    say("CPE1", 4), say(&one, 4), fflush(stdout);
    while (all(request, sizeof request)) {
        size_t B = request[0], width = request[1], passes = request[2], flags = request[3];
        if (width != (size_t)e->talker || passes != (size_t)e->groups - 1) return 2;
        float *hidden = floats(B * width), *cb0 = floats(B * width), *logits = floats(B * passes * e->vocab);
        int32_t *codes = calloc(B * passes, 4), *forced = calloc(B * passes, 4);
        if (!all(hidden, B * width * 4) || !all(cb0, B * width * 4)) return 3;
        if (flags & 1 && !all(forced, B * passes * 4)) return 3;
        for (size_t b = 0; b < B; b++)
            cp_predict_logits(e, hidden + b * width, cb0 + b * width, flags & 1 ? forced + b * passes : NULL,
                              codes + b * passes, logits + b * passes * e->vocab);
        say(&zero, 4), say(codes, B * passes * 4);
        if (flags & 2) say(logits, B * passes * e->vocab * 4);
        fflush(stdout);
        free(hidden), free(cb0), free(logits), free(codes), free(forced);
    }
    return cp_free(e), 0;
}
#endif
