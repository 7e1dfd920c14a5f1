/* An engine of your own as a variant of the lab: build a shared library with these functions and name it,
 *
 *     python -m bench gate  --model synthetic:tiny --variants external:./libmine.so
 *     python -m bench sweep --variants kv_bf16,external:./libmine.so
 *
 * or write a program in any language that speaks the protocol at the end of this file (external:./mine --its-options).
 * It runs in worker processes of its own: whatever it does costs its own cells only.
 *
 * A frame has `hidden` and `cb0_embed`, float32 [talker_hidden] each (1024 for the 0.6B), and gives the groups-1 codes
 * CB1, CB2, ... (15) as int32, chosen greedily: the largest logit, the lowest index among equals. The dimensions stand
 * in the model file, a GGUF. It is the user's own file where the model is one. For a checkpoint's folder or a seeded
 * model it is one of architecture "qwen3-tts" with tensors code_pred.blk.0.attn_q.weight, code_pred.codec_embd.0.weight,
 * code_pred.lm_head.0.weight, ... and keys qwen3-tts.code_pred.* (`python -m cplab inspect FILE` lists them), which lies
 * in the lab's cache; matrices are stored as in the model, or as ?format= or ?file= asks.
 *
 * Options stand behind the name: external:./libmine.so?format=q8_0&tier=quality
 *     tier=codes     (default) every code is the float32 golden's; with cp_predict_logits also teacher-forced
 *     tier=exact     every logit has the bits of the lab's law (cplab/arithmetic.py); needs cp_predict_logits
 *     tier=quality   reduced precision: teacher-forced logits are no further from the float32 oracle than twice a naive
 *                    implementation of the same format; needs cp_predict_logits
 *     format=F       how it holds the matrices: f32, bf16, f16, q8_0, q6_k, q5_0 or q4_0. Where packing changes weights,
 *                    tiers exact and codes are judged on the changed weights. GB/s are told only where the format was.
 *     file=F         what the matrices of the model file are, where that is another format; `stored`: as in the model
 */
#ifndef CP_ENGINE_H
#define CP_ENGINE_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Load a model for a number of threads. Returns NULL where that fails. The process is pinned to its CPUs already. */
void *cp_load(const char *path, int threads);

/* One frame: hidden [talker_hidden], cb0_embed [talker_hidden] -> codes [groups-1]. Returns 0, or anything else where
 * it fails. Calls come one at a time; nothing of a frame may be left over in the next. Inputs are not written to. */
int cp_predict(void *handle, const float *hidden, const float *cb0_embed, int32_t *codes);

/* Optional: as cp_predict, and gives the logits [groups-1][vocab] that the codes were chosen from. Where `forced`
 * [groups-1] is not NULL those codes are fed back instead of the chosen ones (teacher forcing); `codes` are the chosen
 * ones all the same. */
int cp_predict_logits(void *handle, const float *hidden, const float *cb0_embed, const int32_t *forced, int32_t *codes,
                      float *logits);

/* Optional: give everything back. */
void cp_free(void *handle);

/* Optional: one line for the report: name, version, settings. Valid as long as the handle. */
const char *cp_describe(void *handle);

/* Optional: one line on what went wrong last; the handle is NULL after cp_load returned NULL. */
const char *cp_error(void *handle);

#ifdef __cplusplus
}
#endif

/* A program is started once, as COMMAND MODEL_FILE THREADS, and speaks on its standard input and output, all numbers
 * 32 bits, little-endian. Its standard error is shown where it fails.
 *
 * When it has loaded it writes
 *     "CPE1"   four bytes
 *     u32      1 where it can take forced codes and give logits, else 0
 * Then, until its input ends, it reads requests
 *     u32      B, frames
 *     u32      talker_hidden
 *     u32      groups-1
 *     u32      flags: 1 forced codes follow, 2 logits are wanted (never set where it said 0)
 *     float32  hidden [B][talker_hidden]
 *     float32  cb0_embed [B][talker_hidden]
 *     int32    forced [B][groups-1], with flag 1
 * and answers each (do not forget to flush)
 *     u32      0
 *     int32    codes [B][groups-1]
 *     float32  logits [B][groups-1][vocab], with flag 2
 * or, where it fails,
 *     u32      anything but 0
 *     u32      n
 *     bytes    n bytes of text
 */
#endif
