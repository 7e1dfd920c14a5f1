/* The example engine, wrong in one way each: compiled with -DFAULT=N, see test_external.py. */
#define cp_load right_load
#define cp_predict right_predict
#define cp_predict_logits right_predict_logits
#include "example_engine.c"
#undef cp_load
#undef cp_predict
#undef cp_predict_logits
#include <unistd.h>

#define NO_LOGITS 1 /* the preprocessor asks for these two */
#define NO_PREDICT 2
enum { NULL_LOAD = 3, RETURNS_7, WRONG, OUT_OF_RANGE, ONE_MORE, MORE_LOGITS, NOTHING, STALE, SEGFAULT, HANG, NOT_FINITE,
       LATE_SEGFAULT };

void *cp_load(const char *path, int threads) {
    void *handle = right_load(path, threads);
    if (FAULT == NULL_LOAD) snprintf(last_error, sizeof last_error, "no\nmemory for %d threads", threads);
    return FAULT == NULL_LOAD ? NULL : handle;
}

static int faulty(void *handle, const float *hidden, const float *cb0_embed, const int32_t *forced, int32_t *codes,
                  float *logits) {
    static int32_t before[MOST_GROUPS], calls;
    static int *volatile nowhere;
    Engine *e = handle;
    int passes = e->groups - 1;
    if (FAULT == SEGFAULT || (FAULT == LATE_SEGFAULT && !logits && calls++ == 10)) *nowhere = 0;
    while (FAULT == HANG) sleep(1);
    if (FAULT == NOTHING) return 0;
    if (FAULT == RETURNS_7) return snprintf(last_error, sizeof last_error, "out of cheese"), 7;
    right_predict_logits(handle, hidden, cb0_embed, forced, codes, logits);
    if (FAULT == WRONG) codes[1] ^= 1;
    if (FAULT == OUT_OF_RANGE) codes[1] = e->vocab;
    if (FAULT == ONE_MORE) codes[passes] = 0;
    if (FAULT == MORE_LOGITS && logits) logits[passes * e->vocab] = 0;
    if (FAULT == NOT_FINITE && logits) logits[e->vocab + 3] = NAN;
    if (FAULT == STALE) {
        int32_t now[MOST_GROUPS];
        memcpy(now, codes, 4 * passes), memcpy(codes, before, 4 * passes), memcpy(before, now, 4 * passes);
    }
    return 0;
}

#if FAULT != NO_PREDICT
int cp_predict(void *handle, const float *hidden, const float *cb0_embed, int32_t *codes) {
    return faulty(handle, hidden, cb0_embed, NULL, codes, NULL);
}
#endif

#if FAULT != NO_LOGITS
int cp_predict_logits(void *handle, const float *hidden, const float *cb0_embed, const int32_t *forced, int32_t *codes,
                      float *logits) {
    return faulty(handle, hidden, cb0_embed, forced, codes, logits);
}
#endif
